//! The way from a call's URL to a page, with every host on it judged anew.
//!
//! What a server answers never widens what may be reached: a redirect to a host that would ask is refused, and the
//! person's approval of a URL opens private addresses for that URL alone.

use super::address;
use super::exchange::{Answer, Network, private_address};
use super::link::Link;
use super::page::Page;
use super::resolve::Reach;
use super::{REDIRECTS_MAX, Stop, rule_line};
use crate::permission::HostVerdict;
use crate::tool::Refusal;

/// A call's URL, and by whose word it may be fetched.
pub(super) struct Journey<'a> {
    pub(super) start: &'a Link,
    pub(super) verdict: &'a (dyn Fn(&str) -> HostVerdict + Sync),
    /// A person approved this very call.
    pub(super) approved: bool,
}

impl Journey<'_> {
    /// How far the host of `link` may be reached; the reason in the error names the rule that would let it pass.
    pub(super) fn reach(&self, link: &Link) -> Result<Reach, Refusal> {
        let approved = self.approved && link == self.start;
        let reach = match (self.verdict)(link.host()) {
            HostVerdict::Denied => return Err(self.refused(link, "is denied by a rule", None)),
            HostVerdict::Named => Reach::Anywhere,
            HostVerdict::Covered | HostVerdict::Asks if approved => Reach::Anywhere,
            HostVerdict::Covered => Reach::Public,
            // The person let this server be asked; where it sends on to itself, it learns nothing new.
            HostVerdict::Asks if self.approved && self.start.is_same_place(link) => Reach::Public,
            HostVerdict::Asks => {
                let rule = rule_line(link.host());
                let detail = format!("call fetch with that URL, which asks a person, or have the rule {rule} added");
                return Err(self.refused(link, "is allowed by no rule", Some(detail)));
            }
        };
        if reach == Reach::Public && address::is_private_host(link.host()) {
            return Err(private_address(link, "is not a public address"));
        }
        Ok(reach)
    }

    fn refused(&self, link: &Link, why: &str, detail: Option<String>) -> Refusal {
        let host = link.host();
        let refusal = if link == self.start {
            Refusal::new("denied", format!("{} was not fetched: the host {host} {why}", link.as_str()))
        } else {
            let message = format!(
                "{} redirects to {}, which was not followed: the host {host} {why}",
                self.start.as_str(),
                link.as_str()
            );
            Refusal::new("redirect_refused", message)
        };
        Refusal { detail, ..refusal }
    }

    /// Whether a page that was kept may be shown: its own host is judged like that of a redirect.
    pub(super) fn may_see(&self, page: &Page) -> bool {
        match self.reach(&page.link) {
            Ok(Reach::Anywhere) => true,
            Ok(Reach::Public) => !page.private,
            Err(_) => false,
        }
    }

    /// Follows redirects to the page.
    pub(super) fn travel(&self, network: &Network<'_>) -> Result<Page, Stop> {
        let mut link = self.start.clone();
        let mut passed = Vec::new();
        loop {
            let answer = network.get(&link, self.reach(&link)?)?;
            let Some(location) = &answer.location else { return Ok(arrived(link, answer)) };
            let next = link.join(location).map_err(|why| {
                let message = format!("{} redirects to where nothing can be fetched: {why}", link.as_str());
                Refusal::new("redirect_refused", message)
            })?;
            if next == link || passed.contains(&next) {
                let message = format!("{} redirects in a circle, by way of {}", self.start.as_str(), next.as_str());
                return Err(Refusal::new("redirect_refused", message).into());
            }
            if passed.len() >= REDIRECTS_MAX as usize {
                let message = format!("{} redirects more than {REDIRECTS_MAX} times", self.start.as_str());
                return Err(Refusal::new("redirect_refused", message).into());
            }
            passed.push(std::mem::replace(&mut link, next));
        }
    }
}

fn arrived(link: Link, answer: Answer) -> Page {
    Page {
        link,
        status: answer.status,
        content_type: answer.content_type,
        body: answer.body,
        unread_bytes: answer.unread_bytes,
        private: answer.private,
        age: None,
    }
}
