//! Pages in a turn: whose word it takes to fetch one, what the model gets, and what is kept.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::support::{Case, reply};

/// A server of one page and one redirect; it ends with the test's process.
struct Pages {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
}

impl Pages {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::SeqCst);
                serve(stream);
            }
        });
        Self { address, requests }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

fn serve(mut stream: TcpStream) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
        head.push(byte[0]);
    }
    let answer = if head.starts_with(b"GET /away ") {
        "HTTP/1.1 302 Found\r\nLocation: http://elsewhere.test/secret\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    } else {
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 41\r\nConnection: close\r\n\r\n\
         <title>Page</title><p>It says <b>this</b>"
    };
    stream.write_all(answer.as_bytes()).unwrap();
}

#[test]
fn a_host_without_a_rule_asks_and_its_page_is_kept() {
    let pages = Pages::start();
    let url = pages.url("/page");
    let call = || reply().call("fetch", json!({"url": url}));
    let case = Case::new().script([call()]);
    let outcome = case.run(["--output", "json", "tell", "go"]).exit(10).json();
    let pending = &outcome["pending"][0];
    assert_eq!(pending["summary"], json!(url));
    assert_eq!(pending["preview"], json!({"kind": "fetch", "url": url}));
    assert_eq!(pending["grant"], json!([{"type": "fetch", "allow": true, "host": "127.0.0.1"}]));
    assert_eq!(pages.requests(), 0);
    case.server().script([reply().text("done")]);
    case.run(["approve", "--grant", "session"]).exit(0).stdout("done\n");
    let told = case.server().last_request().result("call_1");
    assert!(told.ends_with("text/html, 41 bytes]\n# Page\n\nIt says **this**"), "{told}");
    assert_eq!(pages.requests(), 1);
    assert_eq!(std::fs::read_dir(case.path(".attini/cache/pages")).unwrap().count(), 1);
    case.server().script([call(), reply().call("fetch", json!({"url": url, "refresh": true})), reply().text("again")]);
    case.run(["tell", "once more"]).exit(0);
    assert_eq!(pages.requests(), 2, "one from the cache, one from the server");
}

#[test]
fn a_redirect_to_a_host_that_would_ask_is_not_followed() {
    let pages = Pages::start();
    let rule = json!({"type": "fetch", "allow": true, "host": "127.0.0.1"});
    let calls = reply().call("fetch", json!({"url": pages.url("/away")}));
    let case = Case::new().rules([rule]).script([calls, reply().text("done")]);
    case.run(["tell", "go"]).exit(0);
    assert_eq!(case.outcome_of("call_1").1, "redirect_refused");
    let told = case.server().last_request().result("call_1");
    assert!(told.contains("http://elsewhere.test/secret") && told.contains(r#""host":"elsewhere.test""#), "{told}");
    assert_eq!(pages.requests(), 1);
}
