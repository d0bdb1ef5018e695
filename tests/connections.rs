//! Ways to a model service: through a proxy, and to one whose certificate a private authority has signed.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::support::{Case, reply};

/// A name that only the proxy knows.
const HOST: &str = "model.test";

/// A server with a certificate for [`HOST`] and `localhost`, which passes each request on to a case's model server.
struct Secure {
    address: SocketAddr,
    /// The authority's certificate.
    pem: String,
}

impl Secure {
    fn before(case: &Case) -> Self {
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let names = vec![HOST.to_owned(), "localhost".to_owned()];
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &authority).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
            .unwrap();
        let config = Arc::new(config);
        let target = case.server().address();
        let address = listen(move |stream| {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            // A client that does not trust it hangs up.
            let _ = pass_on(StreamOwned::new(connection, stream), &target);
        });
        Self { address, pem: authority.pem() }
    }

    fn base_url(&self) -> String {
        format!("https://localhost:{}/v1", self.address.port())
    }
}

/// Passes one request on, and its answer back.
fn pass_on(mut client: StreamOwned<ServerConnection, TcpStream>, target: &str) -> io::Result<()> {
    let mut request = read_head(&mut client)?;
    let head = String::from_utf8_lossy(&request).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    client.read_exact(&mut body)?;
    // Behind the request line, so that the server's end of the connection tells the end of the answer.
    let line_end = head.find("\r\n").unwrap_or(0);
    request.splice(line_end..line_end, b"\r\nConnection: close".iter().copied());
    let mut server = TcpStream::connect(target)?;
    server.write_all(&request)?;
    server.write_all(&body)?;
    io::copy(&mut server, &mut client)?;
    client.conn.send_close_notify();
    client.flush()
}

/// Serves each connection on a thread of its own, for as long as the tests run.
fn listen(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Byte by byte, so that nothing behind it is taken.
fn read_head(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(head)
}

/// A proxy that leads every connection to the same place, whatever it is asked for, and keeps what it was asked.
struct Proxy {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    fn to(target: String) -> Self {
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let kept = Arc::clone(&heads);
        let address = listen(move |mut client| {
            let Ok(head) = read_head(&mut client) else { return };
            kept.lock().unwrap().push(String::from_utf8_lossy(&head).into_owned());
            let Ok(mut server) = TcpStream::connect(&target) else { return };
            let _ = client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n");
            let (mut back_from, mut back_to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = io::copy(&mut back_from, &mut back_to);
                let _ = back_to.shutdown(std::net::Shutdown::Write);
            });
            let _ = io::copy(&mut client, &mut server);
            let _ = server.shutdown(std::net::Shutdown::Write);
        });
        Self { address, heads }
    }

    fn take_heads(&self) -> Vec<String> {
        std::mem::take(&mut self.heads.lock().unwrap())
    }
}

#[test]
fn a_private_authority_is_trusted_where_the_environment_names_it() {
    let case = Case::new().file("empty/README", "no certificate\n");
    let secure = Secure::before(&case);
    fs::create_dir(case.path("authorities")).unwrap();
    case.write("authority.pem", &secure.pem);
    case.write("authorities/of-the-house.pem", format!("Ours:\n{}", secure.pem));
    case.write("authorities/README", "no certificate");
    let (file, folder) = (case.path("authority.pem"), case.path("authorities"));
    let folders = format!("{}:{}", case.path("authorities").display(), folder.display());
    for (number, variables) in [
        vec![("SSL_CERT_FILE", file.as_os_str())],
        vec![("SSL_CERT_DIR", folder.as_os_str())],
        vec![("SSL_CERT_DIR", folders.as_ref())],
        vec![("CURL_CA_BUNDLE", file.as_os_str()), ("SSL_CERT_FILE", "/nowhere".as_ref())],
    ]
    .into_iter()
    .enumerate()
    {
        case.server().script([reply().text("done")]);
        let prompt = format!("go {number}");
        let mut invocation = case.attini(["tell", &prompt]).env("OPENAI_BASE_URL", secure.base_url());
        for (name, value) in variables {
            invocation = invocation.env(name, value);
        }
        invocation.run().exit(0).stdout("done\n");
    }
    // Waiting does not make it trusted, so nothing is tried again.
    let asked = case.server().request_count();
    let told = case.attini(["tell", "go"]).env("OPENAI_BASE_URL", secure.base_url()).run().exit(13).stderr_text();
    assert!(told.contains("certificate") && !told.contains("tried"), "{told}");
    for (name, value, words) in [
        ("SSL_CERT_FILE", case.path("none.pem"), "SSL_CERT_FILE cannot be used"),
        ("CURL_CA_BUNDLE", case.path("empty/README"), "CURL_CA_BUNDLE cannot be used"),
        ("SSL_CERT_DIR", case.path("empty"), "SSL_CERT_DIR cannot be used"),
    ] {
        let invocation = case.attini(["tell", "go"]).env("OPENAI_BASE_URL", secure.base_url()).env(name, value);
        invocation.run().exit(2).stderr_contains(words);
    }
    assert_eq!(case.server().request_count(), asked);
}

#[test]
fn a_proxy_leads_to_a_service_whose_name_it_alone_knows() {
    let case = Case::new();
    let secure = Secure::before(&case);
    case.write("authority.pem", &secure.pem);
    let proxy = Proxy::to(secure.address.to_string());
    let url = format!("http://{}", proxy.address);
    let with_password = format!("http://user:pass%20word@{}", proxy.address);
    let bare = proxy.address.to_string();
    let asked = |base_url: &str, variables: &[(&str, &str)]| {
        case.server().script([reply().text("done")]);
        let mut invocation = case.attini(["tell", "go"]).env("OPENAI_BASE_URL", base_url);
        invocation = invocation.env("SSL_CERT_FILE", case.path("authority.pem"));
        for (name, value) in variables {
            invocation = invocation.env(name, value);
        }
        invocation.run().exit(0).stdout("done\n");
        proxy.take_heads()
    };
    let named = format!("https://{HOST}/v1");
    for (variables, credentials) in [
        (vec![("HTTPS_PROXY", url.as_str())], None),
        (vec![("https_proxy", url.as_str()), ("HTTPS_PROXY", "http://127.0.0.1:9")], None),
        (vec![("ALL_PROXY", bare.as_str())], None),
        (vec![("all_proxy", url.as_str()), ("no_proxy", "example.org,10.0.0.0/8")], None),
        (vec![("HTTPS_PROXY", with_password.as_str())], Some("Basic dXNlcjpwYXNzIHdvcmQ=")),
    ] {
        let heads = asked(&named, &variables);
        assert!(heads.len() == 1 && heads[0].starts_with("CONNECT model.test:443 HTTP/1.1\r\n"), "{heads:?}");
        let sent = heads[0].lines().find_map(|line| {
            line.to_ascii_lowercase()
                .starts_with("proxy-authorization: ")
                .then(|| line["proxy-authorization: ".len()..].to_owned())
        });
        assert_eq!(sent.as_deref(), credentials, "{variables:?}");
        assert!(!heads[0].to_ascii_lowercase().contains("\nauthorization"), "the proxy is told no key");
    }
    // What is exempt, or is none of the variable's business, goes without.
    let plain = case.server().openai_base_url();
    for (base_url, variables) in [
        (secure.base_url(), vec![("HTTPS_PROXY", url.as_str()), ("NO_PROXY", "localhost")]),
        (plain.clone(), vec![("HTTPS_PROXY", url.as_str()), ("HTTP_PROXY", url.as_str())]),
        (plain, vec![("http_proxy", url.as_str()), ("no_proxy", "127.0.0.0/8")]),
    ] {
        assert_eq!(asked(&base_url, &variables), Vec::<String>::new(), "{base_url} {variables:?}");
    }
    assert_eq!(case.server().requests().len(), 8);
}
