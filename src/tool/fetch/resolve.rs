//! From a host's name to addresses that may be connected to. What is checked here is what is connected to: there is no
//! second look-up that could answer differently.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use super::address;

/// How far a host may be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Public addresses alone.
    Public,
    /// Any address: a rule names the host, or a person approved the very URL.
    Anywhere,
}

/// What was seen of a host's addresses.
#[derive(Debug, Default, Clone)]
pub(super) struct Seen {
    /// The first address that may not be connected to.
    pub(super) refused: Option<IpAddr>,
    /// Some address that may be connected to is not public.
    pub(super) private: bool,
}

/// Looks a name up, and passes on what may be connected to.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) inner: Arc<dyn Resolver>,
    pub(super) reach: Reach,
    pub(super) seen: Arc<Mutex<Seen>>,
}

impl Resolver for Checked {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = self.inner.resolve(uri, config, timeout)?;
        let mut allowed = self.empty();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for socket in &found {
            let is_public = address::is_public(socket.ip());
            if self.reach == Reach::Anywhere || is_public {
                seen.private |= !is_public;
                allowed.push(*socket);
            } else {
                seen.refused.get_or_insert(socket.ip());
            }
        }
        if allowed.is_empty() { Err(ureq::Error::HostNotFound) } else { Ok(allowed) }
    }
}

/// Behind a proxy only the proxy's own name is looked up; it was named by the user and may lie anywhere.
#[derive(Debug)]
pub(super) struct ProxyAlone {
    pub(super) inner: Arc<dyn Resolver>,
    pub(super) host: String,
}

impl Resolver for ProxyAlone {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        if uri.host() != Some(self.host.as_str()) {
            return Err(ureq::Error::HostNotFound);
        }
        self.inner.resolve(uri, config, timeout)
    }
}
