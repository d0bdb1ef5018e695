mod limits;
mod redirects;
mod server;

use std::sync::Mutex;

use serde_json::json;

use self::server::{Names, Server, answer};
use super::*;
use crate::interrupt::Interrupt;
use crate::permission::HostVerdict;
use crate::session::record::ResultStatus;
use crate::tool::scene::Scene;
use crate::workspace::root::Root;

type Verdict = dyn Fn(&str) -> HostVerdict + Sync;

/// A call with all that can be set about it.
struct Case<'a> {
    scene: Scene,
    names: Arc<Names>,
    variables: Vec<(&'static str, String)>,
    bounds: Bounds,
    verdict: &'a Verdict,
    approved: bool,
    state: Option<Root>,
    interrupt: Interrupt,
}

impl<'a> Case<'a> {
    fn new(verdict: &'a Verdict) -> Self {
        Self {
            scene: Scene::new(&[]),
            names: Arc::new(Names::default()),
            variables: Vec::new(),
            bounds: Bounds { total: Duration::from_secs(30), body_bytes: 1 << 20 },
            verdict,
            approved: false,
            state: None,
            interrupt: Interrupt::default(),
        }
    }

    /// Leads these names to the server.
    fn names(mut self, names: &[&str], server: &Server) -> Self {
        let known = names.iter().map(|name| ((*name).to_owned(), vec![server.address])).collect();
        self.names = Arc::new(Names { known, asked: Mutex::default() });
        self
    }

    fn fetch(&self, url: &str) -> Outcome {
        self.call(&json!({"url": url}))
    }

    fn call(&self, arguments: &Value) -> Outcome {
        let variables = self.variables.clone();
        let variable =
            move |name: &str| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| value.clone());
        let tool = Fetch {
            variable: Box::new(variable),
            resolver: Arc::clone(&self.names) as Arc<dyn Resolver>,
            bounds: self.bounds,
            ..Fetch::new()
        };
        let surroundings =
            Surroundings { fetch_verdict: self.verdict, state: self.state.as_ref(), ..self.scene.surroundings() };
        tool.run(&Work {
            arguments,
            surroundings: &surroundings,
            world: &World::default(),
            files: &[],
            label: "call_1",
            interrupt: &self.interrupt,
            approved_by_person: self.approved,
            answer: None,
            asked: None,
            live: &|_| {},
            output_bytes: &std::sync::atomic::AtomicU64::new(0),
        })
    }
}

fn named(_: &str) -> HostVerdict {
    HostVerdict::Named
}

fn covered(_: &str) -> HostVerdict {
    HostVerdict::Covered
}

fn asks(_: &str) -> HostVerdict {
    HostVerdict::Asks
}

/// A server whose pages are told by their path.
fn pages() -> Server {
    Server::start(|path, stream| match path {
        "/html" => {
            let body = b"<title>T</title><p>a <a href='x?y'>link</a></p><script>no</script>";
            answer(stream, 200, "Content-Type: text/html; charset=utf-8\r\n", body);
        }
        "/json" => answer(stream, 200, "Content-Type: application/json\r\n", b"{\"a\": 1}\n"),
        "/latin" => answer(stream, 200, "Content-Type: text/plain; charset=iso-8859-1\r\n", b"caf\xe9"),
        "/image" => answer(stream, 200, "Content-Type: image/png\r\n", &[7; 1234]),
        "/zip" => answer(stream, 200, "Content-Type: application/octet-stream\r\n", b"PK\x03\x04\0\xff\xfe"),
        "/untyped" => answer(stream, 200, "", b"<html><body>hi"),
        "/empty" => answer(stream, 204, "", b""),
        "/scripted" => answer(stream, 200, "Content-Type: text/html\r\n", b"<script>write()</script>"),
        "/moved" => answer(stream, 302, "Location: /html\r\n", b"gone"),
        "/away" => answer(stream, 302, "Location: http://other.test/json\r\n", b""),
        "/failing" => answer(stream, 503, "Content-Type: text/html\r\n", "<h1>busy</h1>é".repeat(9999).as_bytes()),
        other => answer(stream, 404, "Content-Type: text/plain\r\n", format!("no {other}").as_bytes()),
    })
}

#[test]
fn a_page_is_shown_as_what_it_is() {
    let server = pages();
    let case = Case::new(&named);
    let at = |path: &str| server.url(path);
    let link = format!("http://{}/x?y", server.address);
    let cases = [
        ("/html", "text/html; charset=utf-8, 66 bytes", format!("# T\n\na [link]({link})")),
        ("/json", "application/json, 9 bytes", "{\"a\": 1}\n".to_owned()),
        ("/latin", "text/plain; charset=iso-8859-1, 4 bytes", "café".to_owned()),
        ("/image", "image/png, 1234 bytes", "[not shown, as it is no text]".to_owned()),
        (
            "/zip",
            "application/octet-stream, 7 bytes",
            "[not shown, as it is no text (it is a ZIP archive, or a document or package made of one)]".to_owned(),
        ),
        ("/untyped", "no type given, 14 bytes", "hi".to_owned()),
    ];
    for (path, head, text) in cases {
        let outcome = case.fetch(&at(path));
        assert_eq!(outcome.content, format!("[{}: status 200, {head}]\n{text}", at(path)), "{path}");
        assert_eq!((outcome.status, outcome.code), (ResultStatus::Ok, None), "{path}");
    }
    let outcome = case.fetch(&at("/empty"));
    assert!(outcome.content.contains("status 204") && outcome.content.ends_with("\n[empty]"), "{outcome:?}");
    let outcome = case.fetch(&at("/scripted"));
    assert!(outcome.content.contains("raw: true"), "{outcome:?}");
    let outcome = case.call(&json!({"url": at("/html#part"), "raw": true}));
    assert!(outcome.content.ends_with("<script>no</script>"), "{outcome:?}");
    let head = server.heads.lock().unwrap().last().unwrap().clone();
    assert!(head.starts_with("GET /html HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("user-agent: attini/") && head.contains("accept-encoding: gzip"), "{head}");
    assert!(!head.contains("cookie") && !head.contains("referer") && !head.contains("authorization"), "{head}");
}

#[test]
fn a_failure_tells_status_and_the_beginning_of_its_page() {
    let server = pages();
    let case = Case::new(&named);
    let outcome = case.fetch(&server.url("/nothing"));
    assert_eq!(outcome.code, Some("http_status"));
    let head = format!("[{}: status 404, text/plain, 11 bytes]\nno /nothing", server.url("/nothing"));
    assert_eq!(outcome.content, head);
    assert!(outcome.detail.unwrap().contains("check the URL"));
    let outcome = case.fetch(&server.url("/failing"));
    assert_eq!(outcome.code, Some("http_status"));
    assert!(outcome.content.contains("# busy") && outcome.content.ends_with("\n[...]"));
    assert!(outcome.content.len() < 2500, "{}", outcome.content.len());
}

#[test]
fn what_is_judged_and_shown_is_the_url_as_it_is_sent() {
    let scene = Scene::new(&[]);
    let tool = Fetch::new();
    let assessment = scene.assess(&tool, &json!({"url": "HTTP://Bücher.example:80/a b#c"})).unwrap();
    assert_eq!(assessment.summary, "http://xn--bcher-kva.example/a%20b");
    assert_eq!(assessment.accesses, [Access::Fetch(FetchAccess { host: "xn--bcher-kva.example".to_owned() })]);
    assert_eq!(assessment.preview, Preview::Fetch { url: assessment.summary.clone() });
    for arguments in [
        json!({"url": "file:///etc/passwd"}),
        json!({"url": "https://me:secret@example.org"}),
        json!({"url": "example.org"}),
        json!({"url": "https://example.org", "method": "POST"}),
    ] {
        assert_eq!(scene.assess(&tool, &arguments).unwrap_err().code, "invalid_arguments", "{arguments}");
    }
    assert_eq!((tool.effect(), tool.locality()), (Effect::Read, Locality::Elsewhere));
    let url = "https://example.org";
    assert!(tool.asks_anew(&json!({"url": url, "raw": false, "refresh": true})));
    assert!(!tool.asks_anew(&json!({"url": url, "raw": true, "refresh": false})));
    assert_eq!(tool.parameters()["required"], json!(["url"]));
}

#[test]
fn a_kept_page_is_shown_without_asking_again() {
    let server = pages();
    let folder = tempfile::tempdir().unwrap();
    let mut case = Case::new(&named);
    case.state = Some(Root::open(folder.path()).unwrap());
    let first = case.fetch(&server.url("/moved"));
    assert!(first.content.contains("redirected to") && !first.content.contains("kept"), "{first:?}");
    assert_eq!(server.requests(), 2);
    let second = case.fetch(&server.url("/moved"));
    let shown = first.content.replacen("66 bytes", "66 bytes, kept from less than a minute ago", 1);
    assert_eq!(second.content, shown);
    let raw = case.call(&json!({"url": server.url("/moved"), "raw": true}));
    assert!(raw.content.contains("<script>"), "{raw:?}");
    assert_eq!(server.requests(), 2);
    case.call(&json!({"url": server.url("/moved"), "refresh": true}));
    assert_eq!(server.requests(), 4);
    for _ in 0..2 {
        case.fetch(&server.url("/nothing"));
    }
    assert_eq!(server.requests(), 6, "a failure is not kept");
}

#[test]
fn who_may_see_a_kept_page_is_judged_again() {
    let server = pages();
    let folder = tempfile::tempdir().unwrap();
    let keep = |case: Case<'static>| {
        let mut case = case.names(&["first.test", "other.test"], &server);
        case.state = Some(Root::open(folder.path()).unwrap());
        case
    };
    assert_eq!(keep(Case::new(&named)).fetch("http://first.test/away").code, None);
    assert_eq!(server.requests(), 2);
    // The host that the page was found at is no longer allowed: the way is gone anew, and ends there.
    let refused = |host: &str| if host == "other.test" { HostVerdict::Asks } else { HostVerdict::Named };
    let outcome = keep(Case::new(Box::leak(Box::new(refused)))).fetch("http://first.test/away");
    assert_eq!(outcome.code, Some("redirect_refused"), "{outcome:?}");
    assert_eq!(server.requests(), 3);
    // It is allowed as any public host is; the page came from an address that is not.
    let outcome = keep(Case::new(&covered)).fetch("http://first.test/away");
    assert_eq!(outcome.code, Some("private_address"), "{outcome:?}");
    assert_eq!(server.requests(), 3);
    assert_eq!(keep(Case::new(&named)).fetch("http://first.test/away").code, None);
    assert_eq!(server.requests(), 3);
}

#[test]
fn behind_a_proxy_the_name_is_all_there_is() {
    let proxy = pages();
    let mut case = Case::new(&covered).names(&["proxy.test"], &proxy);
    case.variables.push(("http_proxy", "http://proxy.test:3128".to_owned()));
    let outcome = case.fetch("http://public.test/json");
    assert_eq!(outcome.code, None, "{outcome:?}");
    assert!(proxy.heads.lock().unwrap()[0].starts_with("CONNECT public.test:80 HTTP/1.1\r\n"));
    assert_eq!(*case.names.asked.lock().unwrap(), ["proxy.test"]);
    let before = proxy.requests();
    for url in ["http://127.0.0.1/", "http://localhost:8080/", "http://[fd00::1]/", "http://169.254.169.254/x"] {
        assert_eq!(case.fetch(url).code, Some("private_address"), "{url}");
    }
    assert_eq!(proxy.requests(), before);
    // A host that is exempt is connected to, and so its address is checked.
    case.variables.push(("NO_PROXY", "proxy.test".to_owned()));
    assert_eq!(case.fetch("http://proxy.test/json").code, Some("private_address"));
    assert_eq!(proxy.requests(), before);
    case.variables.push(("https_proxy", "socks5://proxy.test:1080".to_owned()));
    let outcome = case.fetch("https://public.test/");
    assert_eq!(outcome.code, Some("fetch_failed"), "{outcome:?}");
    assert!(outcome.content.contains("https_proxy"), "{outcome:?}");
}
