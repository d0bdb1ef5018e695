//! The servers of an invocation on the one thread that has a runtime: started when wanted, ended together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinSet;

use super::asking::Resumption;
use super::connection::{Connection, Reply, Surrounding};
use super::list::{Lists, ToolList, changes};
use super::notes::Change;
use crate::config::McpConfig;

/// How long the lists that changed may take to be read again at the end.
const LAST_LIST_WAIT: Duration = Duration::from_secs(5);

pub(super) struct Host {
    pub(super) surrounding: Surrounding,
    pub(super) lists: Option<Arc<Lists>>,
    pub(super) slots: BTreeMap<String, Slot>,
}

/// A configured server, running or not.
pub(super) struct Slot {
    pub(super) config: McpConfig,
    connection: Mutex<Option<Arc<Connection>>>,
}

impl Slot {
    pub(super) fn new(config: McpConfig) -> Self {
        Self { config, connection: Mutex::default() }
    }

    fn time_to_start(&self) -> Duration {
        Duration::from_secs(self.config.start_timeout_s)
    }

    fn time_to_answer(&self) -> Duration {
        Duration::from_secs(self.config.timeout_s)
    }
}

/// How a call ended, as far as the host can tell.
pub(super) enum Called {
    /// The server could not be started: nothing was called.
    NotStarted(String),
    /// The call was sent.
    Replied {
        reply: Reply,
        /// Questions to the person that the server asked meanwhile, which were declined.
        declined: Vec<String>,
    },
    /// The server said that it has no such tool, and its list, read again, says so too.
    UnknownTool(String),
}

impl Host {
    /// Asks a server for its tools. An error says why there are none, in words that follow its name.
    pub(super) async fn list(&self, name: &str, interrupt: &Notify) -> Result<ToolList, String> {
        let Some(slot) = self.slots.get(name) else { return Err("is not configured".to_owned()) };
        let listed = async {
            let connection = self.connection(name, slot).await?;
            let tools = connection.list(slot.time_to_start()).await?;
            Ok(self.learn(name, slot, ToolList::new(connection.lifecycle, tools)))
        };
        tokio::select! {
            listed = listed => listed,
            () = interrupt.notified() => Err("was interrupted at its start".to_owned()),
        }
    }

    /// Calls a tool. `looks_unknown` says of a reply whether it may mean that there is no such tool.
    pub(super) async fn call(
        &self,
        name: &str,
        tool: &str,
        arguments: Map<String, Value>,
        resumption: Option<Resumption>,
        interrupt: &Notify,
        looks_unknown: impl Fn(&Reply) -> Option<String>,
    ) -> Called {
        let Some(slot) = self.slots.get(name) else { return Called::NotStarted("is not configured".to_owned()) };
        let started = tokio::select! {
            started = self.connection(name, slot) => started,
            () = interrupt.notified() => Err("was interrupted at its start".to_owned()),
        };
        let connection = match started {
            Ok(connection) => connection,
            Err(why) => return Called::NotStarted(why),
        };
        let reply = connection.call(tool, arguments, resumption, slot.time_to_answer(), interrupt).await;
        if matches!(reply, Reply::TimedOut | Reply::Interrupted | Reply::Died(_)) {
            self.end_one(slot, &connection).await;
        } else if let Some(words) = looks_unknown(&reply)
            && let Ok(tools) = connection.list(slot.time_to_answer()).await
        {
            connection.notes.take_list_changed();
            let list = self.learn(name, slot, ToolList::new(connection.lifecycle, tools));
            if list.tools.iter().all(|listed| listed.name != tool) {
                return Called::UnknownTool(words);
            }
        }
        Called::Replied { reply, declined: connection.notes.take_declined() }
    }

    /// Ends every server, all at once. Those that said that their list changed are asked for it once more.
    pub(super) async fn end(self: Arc<Self>, is_hurried: bool) {
        let mut ends = JoinSet::new();
        for name in self.slots.keys() {
            let (host, name) = (Arc::clone(&self), name.clone());
            ends.spawn(async move {
                let Some(slot) = host.slots.get(&name) else { return };
                let Some(connection) = slot.connection.lock().await.take() else { return };
                host.read_changed_list(&name, slot, &connection, is_hurried).await;
                connection.end().await;
            });
        }
        while ends.join_next().await.is_some() {}
    }

    async fn read_changed_list(&self, name: &str, slot: &Slot, connection: &Connection, is_hurried: bool) {
        if !connection.notes.take_list_changed() {
            return;
        }
        let listed = if is_hurried { None } else { connection.list(LAST_LIST_WAIT).await.ok() };
        match (listed, &self.lists) {
            (Some(tools), _) => drop(self.learn(name, slot, ToolList::new(connection.lifecycle, tools))),
            (None, Some(lists)) => lists.mark_stale(&slot.config),
            (None, None) => {}
        }
    }

    /// The running server, started if it does not run.
    async fn connection(&self, name: &str, slot: &Slot) -> Result<Arc<Connection>, String> {
        let mut held = slot.connection.lock().await;
        if let Some(connection) = held.as_ref().filter(|connection| connection.is_alive()) {
            return Ok(Arc::clone(connection));
        }
        if let Some(dead) = held.take() {
            dead.end().await;
        }
        let seen = self.lists.as_ref().and_then(|lists| lists.last_seen(&slot.config)).map(|list| list.lifecycle);
        let opened = Connection::open(name, &slot.config, seen, &self.surrounding).await;
        let connection = Arc::new(opened.map_err(|failure| failure.why)?);
        *held = Some(Arc::clone(&connection));
        Ok(connection)
    }

    async fn end_one(&self, slot: &Slot, connection: &Arc<Connection>) {
        let mut held = slot.connection.lock().await;
        if held.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection)) {
            *held = None;
        }
        drop(held);
        if let (true, Some(lists)) = (connection.notes.take_list_changed(), &self.lists) {
            lists.mark_stale(&slot.config);
        }
        connection.end().await;
    }

    /// Keeps a list for later invocations; one that changed since it was last seen only when that is told.
    fn learn(&self, name: &str, slot: &Slot, list: ToolList) -> ToolList {
        let Some(lists) = &self.lists else { return list };
        let before = lists.last_seen(&slot.config);
        let changed = before.as_ref().and_then(|before| changes(&before.tools, &list.tools));
        let is_changed = changed.is_some();
        let change = changed.map(|changed| {
            let (lists, config, list) = (Arc::clone(lists), slot.config.clone(), list.clone());
            Change {
                text: format!("the tools of the MCP server {name} changed since they were last listed: {changed}"),
                keep: Box::new(move || lists.store(&config, &list)),
            }
        });
        self.surrounding.warnings.set_change(name, change);
        if !is_changed
            && before.as_ref() != Some(&list)
            && let Err(error) = lists.store(&slot.config, &list)
        {
            self.surrounding.warnings.push(format!("the tools of the MCP server {name} cannot be kept: {error}"));
        }
        list
    }
}
