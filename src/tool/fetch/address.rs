//! Which addresses are the public internet's: every other range is kept from `fetch`, whatever a name resolves to.
//!
//! It knows ranges and the names that always mean this machine; it resolves nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// First address and prefix length of each range of IPv4 that is not public.
const SPECIAL_V4: [(Ipv4Addr, u32); 16] = [
    // "This network", the unspecified address among it.
    (Ipv4Addr::UNSPECIFIED, 8),
    // Private.
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    // Shared by the customers of a carrier.
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    // Loopback.
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    // Link-local; clouds serve the machine's own credentials here.
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    // Private.
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    // Protocol assignments.
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    // Documentation.
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    // Relays of 6to4, no longer in use.
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    // Private.
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    // Benchmarks.
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    // Documentation.
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(233, 252, 0, 0), 24),
    // Multicast.
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    // Reserved, and broadcast.
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// Ranges of IPv6's global unicast space (`2000::/3`) that are not public all the same.
const SPECIAL_V6: [(Ipv6Addr, u32); 3] = [
    // Protocol assignments, Teredo and its hidden IPv4 addresses among them.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    // Documentation.
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

const GLOBAL_UNICAST: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// Whether anyone on the internet could be meant by the address.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => match embedded(address) {
            Embedded::Within(inner) => is_public_v4(inner),
            Embedded::Beside(inner) => is_public_v4(inner) && is_public_v6(address),
            Embedded::Nothing => is_public_v6(address),
        },
    }
}

/// Whether a URL's host is, by its spelling alone, this machine or no public address.
pub(super) fn is_private_host(host: &str) -> bool {
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    if name.is_empty() || name == "localhost" || name.ends_with(".localhost") {
        return true;
    }
    name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok_and(|address| !is_public(address))
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    !SPECIAL_V4.iter().any(|(first, length)| {
        let shift = 32 - length;
        address.to_bits() >> shift == first.to_bits() >> shift
    })
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    is_within(address, GLOBAL_UNICAST) && !SPECIAL_V6.iter().any(|range| is_within(address, *range))
}

fn is_within(address: Ipv6Addr, (first, length): (Ipv6Addr, u32)) -> bool {
    let shift = 128 - length;
    address.to_bits() >> shift == first.to_bits() >> shift
}

/// An IPv4 address inside one of IPv6, to which the packets go in the end.
enum Embedded {
    /// It says all: the rest is a fixed prefix.
    Within(Ipv4Addr),
    /// The rest has to be public as well.
    Beside(Ipv4Addr),
    Nothing,
}

fn embedded(address: Ipv6Addr) -> Embedded {
    let [first @ .., high, low] = address.segments();
    let joined = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match first {
        // Mapped, and translated by NAT64.
        [0, 0, 0, 0, 0, 0xffff] | [0x64, 0xff9b, 0, 0, 0, 0] => Embedded::Within(joined(high, low)),
        // 6to4.
        [0x2002, high, low, ..] => Embedded::Within(joined(high, low)),
        // ISATAP.
        [_, _, _, _, 0 | 0x200, 0x5efe] => Embedded::Beside(joined(high, low)),
        _ => Embedded::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_special_range_is_refused_and_its_neighbours_are_not() {
        let cases: &[(&str, bool)] = &[
            ("0.0.0.0", false),
            ("0.255.255.255", false),
            ("1.0.0.0", true),
            ("9.255.255.255", true),
            ("10.0.0.0", false),
            ("10.255.255.255", false),
            ("11.0.0.0", true),
            ("100.63.255.255", true),
            ("100.64.0.0", false),
            ("100.127.255.255", false),
            ("100.128.0.0", true),
            ("127.0.0.1", false),
            ("127.255.255.255", false),
            ("128.0.0.0", true),
            ("169.253.255.255", true),
            ("169.254.169.254", false),
            ("169.255.0.0", true),
            ("172.15.255.255", true),
            ("172.16.0.0", false),
            ("172.31.255.255", false),
            ("172.32.0.0", true),
            ("192.0.0.8", false),
            ("192.0.1.0", true),
            ("192.0.2.1", false),
            ("192.88.99.1", false),
            ("192.168.0.1", false),
            ("192.169.0.0", true),
            ("198.17.255.255", true),
            ("198.18.0.0", false),
            ("198.19.255.255", false),
            ("198.20.0.0", true),
            ("198.51.100.7", false),
            ("203.0.113.7", false),
            ("223.255.255.255", true),
            ("224.0.0.1", false),
            ("233.252.0.1", false),
            ("239.255.255.255", false),
            ("240.0.0.0", false),
            ("255.255.255.255", false),
            ("8.8.8.8", true),
            ("::", false),
            ("::1", false),
            ("::8.8.8.8", false),
            ("::ffff:8.8.8.8", true),
            ("::ffff:127.0.0.1", false),
            ("::ffff:169.254.169.254", false),
            ("64:ff9b::8.8.8.8", true),
            ("64:ff9b::10.0.0.1", false),
            ("64:ff9b:1::8.8.8.8", false),
            ("100::1", false),
            ("2000::1", true),
            ("2001::1", false),
            ("2001:1ff:ffff::", false),
            ("2001:200::1", true),
            ("2001:db8::1", false),
            ("2001:4860:4860::8888", true),
            ("2002:0808:0808::1", true),
            ("2002:7f00:0001::1", false),
            ("2002:c0a8:0101::1", false),
            ("2606:4700::5efe:10.0.0.1", false),
            ("2606:4700::200:5efe:10.0.0.1", false),
            ("2606:4700::5efe:8.8.8.8", true),
            ("3fff::1", false),
            ("3fff:1000::1", true),
            ("4000::1", false),
            ("5f00::1", false),
            ("fc00::1", false),
            ("fdff::1", false),
            ("fe80::1", false),
            ("fec0::1", false),
            ("ff02::1", false),
        ];
        for (text, expected) in cases {
            assert_eq!(is_public(text.parse().unwrap()), *expected, "{text}");
        }
    }

    #[test]
    fn names_of_this_machine_are_told_by_their_spelling() {
        for (host, expected) in [
            ("localhost", true),
            ("LOCALHOST.", true),
            ("a.b.localhost", true),
            ("notlocalhost", false),
            ("localhost.example.org", false),
            ("127.0.0.1", true),
            ("[::1]", true),
            ("::1", true),
            ("[::ffff:10.0.0.1]", true),
            ("8.8.8.8", false),
            ("[2606:4700::1]", false),
            ("example.org", false),
            ("", true),
        ] {
            assert_eq!(is_private_host(host), expected, "{host}");
        }
    }
}
