//! Who may be reached: at the beginning, at each redirect, and by which address.

use std::net::SocketAddr;

use super::*;

fn redirecting() -> Server {
    Server::start(|path, stream| {
        let to = |stream: &mut _, location: &str| answer(stream, 302, &format!("Location: {location}\r\n"), b"");
        match path {
            "/chain" => to(stream, "one"),
            "/one" => to(stream, "//second.test/two#part"),
            "/two" => to(stream, "http://third.test/end"),
            "/loop" => to(stream, "/pool"),
            "/pool" => to(stream, "/loop"),
            "/self" => to(stream, "/self"),
            "/file" => to(stream, "file:///etc/passwd"),
            "/user" => to(stream, "http://me:secret@second.test/"),
            "/unknown" => to(stream, "http://unknown.test/private?x=1"),
            "/local" => to(stream, "http://127.0.0.1:1/admin"),
            "/metadata" => to(stream, "http://[::ffff:169.254.169.254]/latest"),
            "/again" => to(stream, "/end"),
            "/port" => to(stream, "http://first.test:8080/end"),
            "/nowhere" => answer(stream, 302, "", b"no location"),
            other => match other.strip_prefix("/count/").and_then(|count| count.parse::<u32>().ok()) {
                Some(0) | None => answer(stream, 200, "Content-Type: text/plain\r\n", b"the end"),
                Some(count) => to(stream, &format!("/count/{}", count - 1)),
            },
        }
    })
}

const HOSTS: [&str; 3] = ["first.test", "second.test", "third.test"];

/// The three hosts are named by rules, all others ask.
fn three(host: &str) -> HostVerdict {
    if HOSTS.contains(&host) { HostVerdict::Named } else { HostVerdict::Asks }
}

#[test]
fn a_chain_is_followed_and_its_end_named() {
    let server = redirecting();
    let case = Case::new(&three).names(&HOSTS, &server);
    let outcome = case.fetch("http://first.test/chain");
    assert_eq!(
        outcome.content,
        "[http://first.test/chain redirected to http://third.test/end: status 200, text/plain, 7 bytes]\nthe end"
    );
    // One look-up a connection: there is no second one that could lead elsewhere.
    assert_eq!(*case.names.asked.lock().unwrap(), ["first.test", "first.test", "second.test", "third.test"]);
    let outcome = case.fetch(&format!("http://first.test/count/{REDIRECTS_MAX}"));
    assert_eq!(outcome.code, None, "{outcome:?}");
}

#[test]
fn what_leads_astray_is_not_followed() {
    let server = redirecting();
    let case = Case::new(&three).names(&HOSTS, &server);
    let more = format!("/count/{}", REDIRECTS_MAX + 1);
    for (path, code, words) in [
        (more.as_str(), "redirect_refused", "more than 5 times"),
        ("/loop", "redirect_refused", "in a circle"),
        ("/self", "redirect_refused", "in a circle"),
        ("/file", "redirect_refused", "scheme is file"),
        ("/user", "redirect_refused", "user name"),
        ("/unknown", "redirect_refused", "http://unknown.test/private?x=1"),
        ("/local", "redirect_refused", "127.0.0.1"),
        ("/nowhere", "http_status", "status 302"),
    ] {
        let outcome = case.fetch(&format!("http://first.test{path}"));
        assert_eq!(outcome.code, Some(code), "{path}: {outcome:?}");
        assert!(outcome.content.contains(words), "{path}: {outcome:?}");
    }
    let detail = case.fetch("http://first.test/unknown").detail.unwrap();
    assert!(detail.contains(r#"{"type":"fetch","allow":true,"host":"unknown.test"}"#), "{detail}");
    let everywhere = Case::new(&|host| if host == "first.test" { HostVerdict::Named } else { HostVerdict::Covered });
    let everywhere = everywhere.names(&HOSTS, &server);
    for path in ["/local", "/metadata", "/chain"] {
        let outcome = everywhere.fetch(&format!("http://first.test{path}"));
        assert_eq!(outcome.code, Some("private_address"), "{path}: {outcome:?}");
    }
}

#[test]
fn the_first_host_is_judged_as_well() {
    let server = redirecting();
    let url = server.url("/end");
    let reached = |verdict: &'static Verdict, approved: bool| {
        let case = Case { approved, ..Case::new(verdict) };
        case.fetch(&url).code
    };
    assert_eq!(reached(&asks, false), Some("denied"));
    assert_eq!(reached(&|_| HostVerdict::Denied, true), Some("denied"));
    assert_eq!(reached(&covered, false), Some("private_address"));
    assert_eq!(server.requests(), 0);
    assert_eq!(reached(&named, false), None);
    assert_eq!(reached(&asks, true), None);
    assert_eq!(reached(&covered, true), None);
    assert_eq!(server.requests(), 3);
}

#[test]
fn an_approval_is_for_that_url_and_its_server() {
    let server = redirecting();
    let case = Case { approved: true, ..Case::new(&asks).names(&HOSTS, &server) };
    // The server may send on to itself, but no longer from a private address.
    for (path, code) in [
        ("/end", None),
        ("/again", Some("private_address")),
        ("/port", Some("redirect_refused")),
        ("/unknown", Some("redirect_refused")),
    ] {
        let outcome = case.fetch(&format!("http://first.test{path}"));
        assert_eq!(outcome.code, code, "{path}: {outcome:?}");
    }
}

#[test]
fn a_name_is_reached_by_its_public_addresses_alone() {
    let server = redirecting();
    let case = Case::new(&covered).names(&HOSTS, &server);
    let outcome = case.fetch("http://first.test/end");
    assert_eq!(outcome.code, Some("private_address"));
    assert!(outcome.content.contains("first.test leads to 127.0.0.1"), "{outcome:?}");
    assert!(outcome.detail.unwrap().contains(r#""host":"first.test""#));
    assert_eq!(server.requests(), 0);
    assert_eq!(case.fetch("http://fourth.test/").code, Some("fetch_failed"));
}

#[test]
fn every_address_of_a_name_is_checked() {
    use super::super::resolve::{Checked, Reach, Seen};
    use ureq::unversioned::transport::NextTimeout;
    let addresses = |list: &[&str]| -> Vec<SocketAddr> { list.iter().map(|text| text.parse().unwrap()).collect() };
    let mixed =
        ["10.0.0.1:80", "8.8.8.8:80", "[::1]:80", "[::ffff:127.0.0.1]:80", "[2606:4700::1]:80", "[64:ff9b::7f00:1]:80"];
    let known = [("mixed.test".to_owned(), addresses(&mixed))].into();
    let inner = Arc::new(Names { known, asked: Mutex::default() });
    for (reach, expected, private) in
        [(Reach::Public, vec!["8.8.8.8:80", "[2606:4700::1]:80"], false), (Reach::Anywhere, mixed.to_vec(), true)]
    {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let checked = Checked { inner: Arc::clone(&inner) as Arc<dyn Resolver>, reach, seen: Arc::clone(&seen) };
        let config = ureq::Agent::config_builder().build();
        let uri = "http://mixed.test/".parse().unwrap();
        let found = checked.resolve(&uri, &config, NextTimeout::default()).unwrap();
        assert_eq!(found.iter().copied().collect::<Vec<_>>(), addresses(&expected), "{reach:?}");
        assert_eq!(seen.lock().unwrap().private, private, "{reach:?}");
    }
}
