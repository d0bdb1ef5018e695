//! The synchronous face of the servers: orders go to one thread, which alone has a runtime, and answers come back.
//!
//! The thread is there from the first order on: where no server is wanted, nothing of this is ever made. It also lives
//! as long as any server does, as they die with it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;

use serde_json::{Map, Value};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::answer;
use super::asking::Resumption;
use super::host::{Called, Host};
use super::list::ToolList;
use super::notes::{Warning, Warnings};
use crate::interrupt::Interrupt;

/// The MCP servers of an invocation. Dropping it ends those that run.
pub struct Servers {
    desk: Arc<Desk>,
}

/// Where tools leave their orders.
pub(super) struct Desk {
    state: Mutex<State>,
    warnings: Arc<Warnings>,
    interrupt: Interrupt,
}

enum State {
    Idle(Box<Host>),
    Running { orders: UnboundedSender<Order>, thread: JoinHandle<()> },
    Ended,
}

/// What the thread is asked to do. Whoever asked may be gone when the answer comes.
enum Order {
    List {
        server: String,
        interrupt: Arc<Notify>,
        answer: mpsc::Sender<(String, Result<ToolList, String>)>,
    },
    Call {
        server: String,
        tool: String,
        arguments: Map<String, Value>,
        resumption: Option<Resumption>,
        interrupt: Arc<Notify>,
        answer: mpsc::Sender<Called>,
    },
}

impl Servers {
    pub(super) fn new(host: Host, warnings: Arc<Warnings>, interrupt: Interrupt) -> Self {
        let state = Mutex::new(State::Idle(Box::new(host)));
        Self { desk: Arc::new(Desk { state, warnings, interrupt }) }
    }

    /// No server at all.
    pub fn none() -> Self {
        Self::none_because(None)
    }

    /// No server at all, and why.
    pub(super) fn none_because(why: Option<String>) -> Self {
        let warnings = Arc::new(Warnings::default());
        if let Some(why) = why {
            warnings.push(why);
        }
        let state = Mutex::new(State::Ended);
        Self { desk: Arc::new(Desk { state, warnings, interrupt: Interrupt::default() }) }
    }

    pub(super) fn desk(&self) -> Arc<Desk> {
        Arc::clone(&self.desk)
    }

    /// Hands over what is to be told of the servers since this was last done. Whoever takes it has told it.
    pub fn tell_warnings(&self, tell: impl FnMut(&Warning)) {
        self.desk.warnings.tell(tell);
    }

    /// All that was told so far.
    pub fn warnings_told(&self) -> Vec<String> {
        self.desk.warnings.told()
    }

    /// Ends the servers that run, and waits for that. Later calls find none.
    pub fn end(&self) {
        self.desk.end();
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.desk.end();
    }
}

impl Desk {
    /// Asks these servers for their tools, all at once.
    pub(super) fn list(&self, servers: &[&str]) -> Vec<(String, Result<ToolList, String>)> {
        let mut answers = Vec::with_capacity(servers.len());
        let (answer, listed) = mpsc::channel();
        let mut closers = Vec::with_capacity(servers.len());
        for server in servers {
            // One for each: a notification wakes one alone.
            let interrupt = Arc::new(Notify::new());
            closers.push(self.closer(&interrupt));
            let order = Order::List { server: (*server).to_owned(), interrupt, answer: answer.clone() };
            if let Err(why) = self.place(order) {
                answers.push(((*server).to_owned(), Err(why)));
            }
        }
        drop(answer);
        answers.extend(listed);
        // A thread that failed leaves servers without an answer.
        for server in servers {
            if answers.iter().all(|(name, _)| name != server) {
                answers
                    .push(((*server).to_owned(), Err("was not asked: the thread for MCP servers failed".to_owned())));
            }
        }
        answers
    }

    /// Calls a tool and waits for how that ends. `None`: the thread for servers failed on the way.
    /// `resumption`: what it is to go on with, where it was called before.
    pub(super) fn call(
        &self,
        server: &str,
        tool: &str,
        arguments: Map<String, Value>,
        resumption: Option<Resumption>,
    ) -> Option<Called> {
        let interrupt = Arc::new(Notify::new());
        let _closer = self.closer(&interrupt);
        let (answer, called) = mpsc::channel();
        let (server, tool) = (server.to_owned(), tool.to_owned());
        let order = Order::Call { server, tool, arguments, resumption, interrupt, answer };
        match self.place(order) {
            Ok(()) => called.recv().ok(),
            Err(why) => Some(Called::NotStarted(why)),
        }
    }

    fn closer(&self, interrupt: &Arc<Notify>) -> crate::interrupt::CloserGuard {
        let interrupt = Arc::clone(interrupt);
        self.interrupt.on_raise(move || interrupt.notify_one())
    }

    fn place(&self, order: Order) -> Result<(), String> {
        let mut state = self.state();
        if let State::Idle(_) = &*state {
            let State::Idle(host) = std::mem::replace(&mut *state, State::Ended) else { return Ok(()) };
            *state = start(*host, self.interrupt.clone())?;
        }
        match &*state {
            State::Running { orders, .. } => {
                orders.send(order).map_err(|_| "cannot be reached: the thread for MCP servers failed".to_owned())
            }
            State::Idle(_) | State::Ended => Err("was not started: the MCP servers are ended".to_owned()),
        }
    }

    fn end(&self) {
        let state = std::mem::replace(&mut *self.state(), State::Ended);
        if let State::Running { orders, thread } = state {
            drop(orders);
            // A panic there was told where it was noticed; here everything only has to be over.
            let _ = thread.join();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn start(host: Host, interrupt: Interrupt) -> Result<State, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot be spoken to: no runtime: {error}"))?;
    let (orders, placed) = unbounded_channel();
    let thread = std::thread::Builder::new()
        .name("mcp".to_owned())
        .spawn(move || {
            let host = Arc::new(host);
            runtime.block_on(serve(&host, placed));
            runtime.block_on(host.end(interrupt.is_raised()));
        })
        .map_err(|error| format!("cannot be spoken to: no thread: {error}"))?;
    Ok(State::Running { orders, thread })
}

/// Carries orders out, each beside the others, until no more can come.
async fn serve(host: &Arc<Host>, mut placed: UnboundedReceiver<Order>) {
    while let Some(order) = placed.recv().await {
        let host = Arc::clone(host);
        tokio::spawn(async move {
            match order {
                Order::List { server, interrupt, answer } => {
                    let listed = host.list(&server, &interrupt).await;
                    let _ = answer.send((server, listed));
                }
                Order::Call { server, tool, arguments, resumption, interrupt, answer } => {
                    let looks_unknown = |reply: &_| answer::looks_unknown(reply, &tool);
                    let called = host.call(&server, &tool, arguments, resumption, &interrupt, looks_unknown).await;
                    let _ = answer.send(called);
                }
            }
        });
    }
}
