//! What attini answers when a server asks: where the workspace is, and nothing else.
//!
//! A server gets no answers from the model or the person in the middle of a call. Questions of the older protocols are
//! declined, which the call's result then says; requests to sample from a model are refused.
#![expect(deprecated, reason = "a later protocol does away with roots, but today's servers ask for them")]

use std::path::Path;
use std::sync::Arc;

use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction, ErrorData, Implementation,
    ListRootsResult, ProtocolVersion, Root,
};
use rmcp::service::{NotificationContext, RequestContext, RoleClient};
use serde_json::json;

use super::notes::Notes;

pub(super) struct Client {
    workspace: String,
    notes: Arc<Notes>,
}

impl Client {
    /// `workspace`: absolute.
    pub(super) fn new(workspace: &Path, notes: Arc<Notes>) -> Self {
        Self { workspace: file_uri(workspace), notes }
    }
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        // An object of these two keys is always one of capabilities.
        let capabilities: ClientCapabilities =
            serde_json::from_value(json!({"roots": {}, "elicitation": {}})).unwrap_or_default();
        let implementation = Implementation::new("attini", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(capabilities, implementation).with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn list_roots(&self, _context: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Ok(ListRootsResult::new(vec![Root::new(self.workspace.clone())]))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.notes.decline(question(&request));
        Ok(ElicitResult::new(ElicitationAction::Decline))
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.notes.mark_list_changed();
    }
}

/// What a request for input asks, in its own words.
pub(super) fn question(request: &ElicitRequestParams) -> String {
    match request {
        ElicitRequestParams::FormElicitationParams { message, .. } => message.clone(),
        ElicitRequestParams::UrlElicitationParams { message, url, .. } => format!("{message} ({url})"),
        _ => "a question of an unknown kind".to_owned(),
    }
}

/// A path as the URI of a file, with all that is no plain letter escaped.
pub(super) fn file_uri(path: &Path) -> String {
    use std::fmt::Write;
    use std::os::unix::ffi::OsStrExt;
    let mut uri = "file://".to_owned();
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(byte) {
            uri.push(char::from(*byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_is_named_by_a_uri() {
        assert_eq!(file_uri(Path::new("/home/a b/ü#1")), "file:///home/a%20b/%C3%BC%231");
    }

    #[test]
    fn attini_says_what_it_answers_and_no_more() {
        let client = Client::new(Path::new("/w"), Arc::new(Notes::new("fs", Arc::default())));
        let said = serde_json::to_value(client.get_info()).unwrap();
        assert_eq!(said["capabilities"], json!({"roots": {}, "elicitation": {}}));
        assert_eq!(said["protocolVersion"], "2025-11-25");
        assert_eq!(said["clientInfo"]["name"], "attini");
    }
}
