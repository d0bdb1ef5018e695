//! Hosts in rules: one name, a name and its subdomains, or every public host.
//!
//! By name alone. Which address a name leads to is checked where the connection is made.

use std::net::{IpAddr, Ipv4Addr};

const HOST_BYTES_MAX: usize = 253;

/// Whether `text` can stand as a rule's `host`: a name, `*.` and a name, an address, or `*`.
pub(super) fn is_pattern(text: &str) -> bool {
    if text == "*" || text.parse::<IpAddr>().is_ok() || bracketed_address(text).is_some() {
        return true;
    }
    let name = text.strip_prefix("*.").unwrap_or(text);
    // `%` would be decoded, and then be another name.
    let Some(name) = as_in_addresses(name).filter(|_| !name.contains('%')) else { return false };
    let name = name.strip_suffix('.').unwrap_or(&name);
    name.len() <= HOST_BYTES_MAX
        && name.split('.').all(|label| {
            let plain = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_');
            !label.is_empty() && label.chars().all(plain)
        })
}

/// A name as the addresses of pages hold it: an international one in its form of plain letters. `None`: there is no
/// such form.
fn as_in_addresses(name: &str) -> Option<String> {
    match url::Host::parse(name).ok()? {
        url::Host::Domain(domain) => Some(domain),
        url::Host::Ipv4(address) => Some(address.to_string()),
        url::Host::Ipv6(_) => None,
    }
}

/// Whether a rule's host covers `host`. `*` covers no host that is known to be private from its spelling.
pub(super) fn matches(pattern: &str, host: &str) -> bool {
    let pattern = normalized(pattern);
    let host = normalized(host);
    if pattern == "*" {
        return !is_private_by_name(&host);
    }
    match pattern.strip_prefix("*.") {
        Some(domain) => {
            host == domain || host.strip_suffix(domain).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
        }
        None => host == pattern,
    }
}

fn normalized(host: &str) -> String {
    if let Some(address) = bracketed_address(host) {
        return address.to_string();
    }
    if let Ok(address) = host.parse::<IpAddr>() {
        return address.to_string();
    }
    let (star, name) = host.strip_prefix("*.").map_or(("", host), |name| ("*.", name));
    let name = as_in_addresses(name).unwrap_or_else(|| name.to_lowercase());
    format!("{star}{}", name.strip_suffix('.').unwrap_or(&name))
}

fn bracketed_address(text: &str) -> Option<IpAddr> {
    text.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

fn is_private_by_name(host: &str) -> bool {
    if host == "localhost" || host.ends_with(".localhost") {
        return true;
    }
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => is_private_v4(address),
        Ok(IpAddr::V6(address)) => {
            address.to_ipv4_mapped().is_some_and(is_private_v4)
                || address.is_loopback()
                || address.is_unspecified()
                || address.is_unique_local()
                || address.is_unicast_link_local()
        }
        Err(_) => false,
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    address.is_loopback() || address.is_private() || address.is_link_local() || address.is_unspecified()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_told_from_addresses_of_pages() {
        for pattern in [
            "example.org",
            "*.example.org",
            "*",
            "localhost",
            "127.0.0.1",
            "::1",
            "[::1]",
            "a_b.c-d.",
            "bücher.de",
            "*.döcs.example.org",
        ] {
            assert!(is_pattern(pattern), "{pattern}");
        }
        for text in [
            "",
            "*.",
            "http://example.org",
            "example.org/x",
            "example.org:80",
            "*example.org",
            "a.*.org",
            "a b",
            "a..b",
            "a%62.org",
            "xn--\u{fc}.org",
            "\u{200b}\u{ad}",
            "\u{fdd0}.org",
        ] {
            assert!(!is_pattern(text), "{text}");
        }
    }

    #[test]
    fn a_host_is_itself_a_star_its_subdomains() {
        for (pattern, host, expected) in [
            ("example.org", "example.org", true),
            ("example.org", "EXAMPLE.org.", true),
            ("example.org", "www.example.org", false),
            ("example.org", "badexample.org", false),
            ("*.example.org", "www.example.org", true),
            ("*.example.org", "a.b.example.org", true),
            ("*.example.org", "badexample.org", false),
            ("*.example.org", ".example.org", false),
            ("*.example.org", "example.org", true),
            ("*", "example.org", true),
            ("*", "localhost", false),
            ("*", "a.localhost", false),
            ("*", "10.0.0.1", false),
            ("*", "169.254.1.1", false),
            ("*", "[::1]", false),
            ("*", "::ffff:127.0.0.1", false),
            ("*", "8.8.8.8", true),
            ("döcs.example.org", "xn--dcs-sna.example.org", true),
            ("DÖCS.example.org.", "xn--dcs-sna.example.org", true),
            ("do\u{308}cs.example.org", "xn--dcs-sna.example.org", true),
            ("*.döcs.org", "a.xn--dcs-sna.org", true),
            ("xn--dcs-sna.example.org", "döcs.example.org", true),
            ("döcs.example.org", "docs.example.org", false),
            ("::1", "[0:0:0:0:0:0:0:1]", true),
        ] {
            assert_eq!(matches(pattern, host), expected, "{pattern} {host}");
        }
    }
}
