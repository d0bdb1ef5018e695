//! The Chat Completions format, as `OpenAI` and the many services that follow it speak it.
//!
//! Here is the exchange; what is sent is built in `request`, what comes is read in `reply`.

mod effort;
mod reply;
mod request;

/// A reply in this format that is about to come in.
pub(super) fn assembly(service: Service<'_>) -> impl super::reading::Assembly {
    ReplySoFar::new(service)
}

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(super) use self::request::body;

use self::reply::ReplySoFar;
use super::catalogue::Dialect;
use super::http::Http;
use super::models::{self, Model};
use super::retry::Schedule;
use super::trouble::{Service, Trouble};
use super::{Progress, Provider, ProviderError, Reply, Request, reading, wire};
use crate::interrupt::Interrupt;

/// Where services put what a model thought, in the order looked at.
const REASONING_FIELDS: [&str; 2] = ["reasoning_content", "reasoning"];
/// In place of a field's name: the reasoning came as parts of the content.
const CONTENT_PARTS: &str = "content_parts";
/// In the opaque part of a message: the name of the field that held the reasoning.
const REASONING_FIELD: &str = "reasoning_field";
/// In the opaque part of a message: the fields that go back as they are.
const KEPT: &str = "fields";

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
    /// Whether a user text may stand right behind results.
    pub user_after_tool: bool,
    pub dialect: Dialect,
}

pub struct OpenAi {
    http: Http,
    settings: Settings,
    schedule: Schedule,
}

impl OpenAi {
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
        let bearer = self.settings.key.as_ref().map(|key| format!("Bearer {key}"));
        let mut headers = vec![("Accept", "text/event-stream, application/json")];
        headers.extend(bearer.as_deref().map(|bearer| ("Authorization", bearer)));
        let mut answer = self.http.post(&self.settings.url, &headers, body.to_vec(), interrupt)?;
        reading::read(self.service(), &mut answer, ReplySoFar::new(self.service()), observe)
    }
}

impl Provider for OpenAi {
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
        let bearer = self.settings.key.as_ref().map(|key| format!("Bearer {key}"));
        let headers: Vec<(&str, &str)> =
            bearer.as_deref().map(|bearer| ("Authorization", bearer)).into_iter().collect();
        models::list(self.service(), &self.http, &self.settings.models_url, &headers, interrupt, observe)
    }
}
