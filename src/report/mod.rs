//! What a person or a script gets to see: events, text, JSON; and the escaping of everything that comes from outside.

pub mod event;
