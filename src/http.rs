//! What every HTTP request of attini's own shares: certificates, the proxy, and the name it goes by.
//!
//! It sends nothing; model requests are in `provider::http`, pages in `tool::fetch`.

use std::net::IpAddr;

use ureq::ProxyProtocol;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig};

use crate::failure::Failure;

pub const USER_AGENT: &str = concat!("attini/", env!("CARGO_PKG_VERSION"));

/// Reads an environment variable; empty counts as unset.
pub type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A variable of the process's environment; empty, or no UTF-8, counts as unset.
pub fn environment_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Certificates are checked as the platform does it, or against those alone that the environment names: the file of
/// `CURL_CA_BUNDLE`, or else the file of `SSL_CERT_FILE` and the folders of `SSL_CERT_DIR`.
pub fn load_tls(scheme: &str, variable: Variable<'_>) -> anyhow::Result<TlsConfig> {
    let mut certificates = Vec::new();
    if scheme == "https" {
        let mut load = |name: &str, load: fn(&str) -> anyhow::Result<Vec<Certificate<'static>>>| {
            let Some(value) = variable(name) else { return Ok(false) };
            let loaded = load(&value);
            let unusable = |error| Failure::usage(format!("{name} cannot be used: {error:#}"));
            certificates.extend(loaded.map_err(unusable)?);
            anyhow::Ok(true)
        };
        if !load("CURL_CA_BUNDLE", load_bundle)? {
            load("SSL_CERT_FILE", load_bundle)?;
            load("SSL_CERT_DIR", load_folders)?;
        }
    }
    let roots = if certificates.is_empty() { RootCerts::PlatformVerifier } else { certificates.into() };
    Ok(TlsConfig::builder().root_certs(roots).build())
}

fn load_bundle(file: &str) -> anyhow::Result<Vec<Certificate<'static>>> {
    let pem = fs_err::read(file)?;
    let mut certificates = Vec::new();
    for item in ureq::tls::parse_pem(&pem) {
        if let PemItem::Certificate(certificate) = item? {
            certificates.push(certificate);
        }
    }
    anyhow::ensure!(!certificates.is_empty(), "{file} holds no certificate");
    Ok(certificates)
}

/// All certificates in folders (colons between); other files there do not matter.
fn load_folders(folders: &str) -> anyhow::Result<Vec<Certificate<'static>>> {
    let mut certificates = Vec::new();
    for folder in folders.split(':').filter(|folder| !folder.is_empty()) {
        let mut paths: Vec<_> = fs_err::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths.iter().filter(|path| path.is_file()) {
            certificates.extend(path.to_str().and_then(|path| load_bundle(path).ok()).into_iter().flatten());
        }
    }
    anyhow::ensure!(!certificates.is_empty(), "no file in {folders} holds a certificate");
    Ok(certificates)
}

/// The proxy for a host, and the variable that names it.
pub fn load_proxy(
    scheme: &str,
    host: &str,
    variable: Variable<'_>,
) -> anyhow::Result<Option<(&'static str, ureq::Proxy)>> {
    let Some((name, url)) = choose_proxy(scheme, host, variable) else { return Ok(None) };
    // The address may hold a password, so it is not shown.
    let proxy = ureq::Proxy::new(&url).map_err(|error| Failure::usage(format!("{name} cannot be used: {error}")))?;
    // ureq would panic when it connects.
    if !matches!(proxy.protocol(), ProxyProtocol::Http | ProxyProtocol::Https) {
        let failure = Failure::usage(format!("{name} cannot be used: SOCKS proxies are not supported"));
        return Err(failure.hint("name an HTTP proxy, or exempt the host in NO_PROXY").into());
    }
    Ok(Some((name, proxy)))
}

/// The variable that counts for a host, and its value. An upper-case `HTTP_PROXY` does not: a CGI server sets it from
/// a request's header.
fn choose_proxy(scheme: &str, host: &str, variable: Variable<'_>) -> Option<(&'static str, String)> {
    let names: &[&'static str] = if scheme == "https" {
        &["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]
    } else {
        &["http_proxy", "all_proxy", "ALL_PROXY"]
    };
    let found = names.iter().find_map(|name| Some((*name, variable(name)?)))?;
    let exempt = variable("no_proxy").or_else(|| variable("NO_PROXY")).unwrap_or_default();
    (!is_exempt(host, &exempt)).then_some(found)
}

/// Whether a list of hosts, domains and networks (commas or spaces between, `*` for all) names the host.
fn is_exempt(host: &str, list: &str) -> bool {
    let host = host.trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase();
    list.split([',', ' ']).map(str::trim).filter(|entry| !entry.is_empty()).any(|entry| {
        let entry = entry.trim_matches(['[', ']']).trim_matches('.').to_ascii_lowercase();
        let in_domain = || host.strip_suffix(&entry).is_some_and(|rest| rest.ends_with('.'));
        entry == "*" || host == entry || in_domain() || is_in_network(&host, &entry)
    })
}

/// Whether a host is an address in a network such as `10.0.0.0/8`.
fn is_in_network(host: &str, network: &str) -> bool {
    let Some((first, bits)) = network.split_once('/') else { return false };
    // The bits of an address, the first one highest.
    let bits_of = |text: &str| match text.trim_matches(['[', ']']).parse() {
        Ok(IpAddr::V4(address)) => Some((u128::from(address.to_bits()) << 96, 32)),
        Ok(IpAddr::V6(address)) => Some((address.to_bits(), 128)),
        Err(_) => None,
    };
    let (Some((address, length)), Some((first, of_length)), Ok(bits)) =
        (bits_of(host), bits_of(first), bits.parse::<u32>())
    else {
        return false;
    };
    length == of_length && bits <= length && (address ^ first).checked_shr(128 - bits).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    type Environment = &'static [(&'static str, &'static str)];

    #[test]
    fn the_proxy_is_chosen_as_curl_does() {
        let cases: &[(&str, &str, Environment, Option<&str>)] = &[
            ("https", "api.acme.test", &[("HTTPS_PROXY", "a")], Some("a")),
            ("https", "api.acme.test", &[("HTTPS_PROXY", "a"), ("https_proxy", "b")], Some("b")),
            ("https", "api.acme.test", &[("ALL_PROXY", "c")], Some("c")),
            ("https", "api.acme.test", &[("http_proxy", "d")], None),
            ("http", "127.0.0.1", &[("HTTPS_PROXY", "a"), ("HTTP_PROXY", "b")], None),
            ("http", "acme.test", &[("http_proxy", "d")], Some("d")),
            ("https", "api.acme.test", &[("HTTPS_PROXY", "a"), ("NO_PROXY", "acme.test")], None),
            ("https", "api.acme.test", &[("HTTPS_PROXY", "a"), ("NO_PROXY", "x.test, .Acme.test")], None),
            ("https", "api.acme.test", &[("HTTPS_PROXY", "a"), ("NO_PROXY", "me.test")], Some("a")),
            ("https", "api.acme.test", &[("HTTPS_PROXY", "a"), ("NO_PROXY", "*")], None),
            ("https", "[::1]", &[("HTTPS_PROXY", "a"), ("NO_PROXY", "::1")], None),
            ("https", "10.1.2.3", &[("HTTPS_PROXY", "a"), ("NO_PROXY", "10.0.0.0/8")], None),
            ("https", "11.1.2.3", &[("HTTPS_PROXY", "a"), ("NO_PROXY", "10.0.0.0/8")], Some("a")),
            ("https", "11.1.2.3", &[("HTTPS_PROXY", "a"), ("NO_PROXY", "x,0.0.0.0/0")], None),
            ("https", "10.1.2.3", &[("HTTPS_PROXY", "a"), ("NO_PROXY", "10.1.2.3/32")], None),
            ("https", "10.1.2.2", &[("HTTPS_PROXY", "a"), ("NO_PROXY", "10.1.2.3/32")], Some("a")),
            ("https", "10.1.2.3", &[("HTTPS_PROXY", "a"), ("NO_PROXY", "10.0.0.0/33, 10.0.0.0/x")], Some("a")),
            ("https", "[fd00::1]", &[("HTTPS_PROXY", "a"), ("NO_PROXY", "fd00::/8")], None),
            ("https", "10.1.2.3", &[("HTTPS_PROXY", "a"), ("NO_PROXY", "::/0")], Some("a")),
        ];
        for (scheme, host, environment, expected) in cases {
            let variable =
                |name: &str| environment.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned());
            let found = choose_proxy(scheme, host, &variable).map(|(_, value)| value);
            assert_eq!(found.as_deref(), *expected, "{scheme} {host} {environment:?}");
        }
    }

    #[test]
    fn a_proxy_of_another_kind_is_refused_by_the_variables_name() {
        for (url, usable) in [
            ("http://proxy.acme.test:3128", true),
            ("socks5://proxy.acme.test:1080", false),
            ("socks4a://proxy.acme.test:1080", false),
            ("socks5h://proxy.acme.test:1080", false),
        ] {
            let variable = |name: &str| (name == "ALL_PROXY").then(|| url.to_owned());
            match load_proxy("https", "acme.test", &variable) {
                Ok(Some((name, _))) => assert!(usable && name == "ALL_PROXY", "{url}"),
                Ok(None) => panic!("{url}"),
                Err(error) => assert!(!usable && format!("{error:#}").contains("ALL_PROXY"), "{url}: {error:#}"),
            }
        }
    }
}
