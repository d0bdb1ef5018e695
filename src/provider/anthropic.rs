//! Anthropic's Messages format.
//!
//! Here is the exchange; what is sent is built in `request`, what comes is read in `reply`.

mod reply;
mod request;

/// A reply in this format that is about to come in.
pub(super) fn assembly(service: Service<'_>) -> impl super::reading::Assembly {
    ReplySoFar::new(service)
}

#[cfg(test)]
mod tests;
mod thinking;

use self::reply::ReplySoFar;
use super::http::Http;
use super::models::{self, Model};
use super::retry::Schedule;
use super::trouble::{Service, Trouble};
use super::{Progress, Provider, ProviderError, Reply, Request, reading, wire};
use crate::interrupt::Interrupt;

/// The version of the format that is spoken.
const VERSION: &str = "2023-06-01";

/// In the opaque part of a message: its blocks, in their order. Texts and calls are there without their content, which
/// stands in the message itself.
const BLOCKS: &str = "blocks";
/// Of a text among those blocks: how much of the message's text it is.
const TEXT_BYTES: &str = "bytes";
/// In the opaque part of a message: the service paused, and goes on from the message as it is.
const PAUSED: &str = "paused";

/// What tells one service of this format from another.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The provider's name.
    pub provider: String,
    /// Of the whole endpoint.
    pub url: String,
    /// Where the list of models is.
    pub models_url: String,
    /// The environment variable of the key, for hints.
    pub key_variable: Option<String>,
    pub key: Option<String>,
    /// Whether those of its models that can are held to a JSON Schema for the answer.
    pub takes_output_schema: bool,
}

pub struct Anthropic {
    http: Http,
    settings: Settings,
    schedule: Schedule,
}

impl Anthropic {
    pub fn new(http: Http, settings: Settings) -> Self {
        Self { http, settings, schedule: Schedule::default() }
    }

    fn service(&self) -> Service<'_> {
        Service { provider: &self.settings.provider, key_variable: self.settings.key_variable.as_deref() }
    }

    fn send(
        &self,
        body: &[u8],
        interrupt: &Interrupt,
        observe: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Reply, Trouble> {
        let mut headers = vec![("Accept", "text/event-stream, application/json"), ("anthropic-version", VERSION)];
        headers.extend(self.settings.key.as_deref().map(|key| ("x-api-key", key)));
        let mut answer = self.http.post(&self.settings.url, &headers, body.to_vec(), interrupt)?;
        reading::read(self.service(), &mut answer, ReplySoFar::new(self.service()), observe)
    }
}

impl Provider for Anthropic {
    fn complete(
        &self,
        request: &Request<'_>,
        interrupt: &Interrupt,
        observe: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Reply, ProviderError> {
        let body = request::body(&self.settings, request).map_err(|trouble| trouble.error)?.to_string().into_bytes();
        let send = |observe: &mut dyn FnMut(Progress<'_>)| self.send(&body, interrupt, observe);
        let mut reply = self.schedule.run(&self.settings.provider, interrupt, observe, send)?;
        wire::give_names_back(&mut reply.tool_calls, request);
        Ok(reply)
    }

    fn models(
        &self,
        interrupt: &Interrupt,
        observe: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Vec<Model>, ProviderError> {
        let mut headers = vec![("anthropic-version", VERSION)];
        headers.extend(self.settings.key.as_deref().map(|key| ("x-api-key", key)));
        models::list(self.service(), &self.http, &self.settings.models_url, &headers, interrupt, observe)
    }
}
