//! The life of one tool call, a stage a file, in this order:
//!
//! 1. [`proposed`]: what the model sent, with an id that is unique for good;
//! 2. [`checked`]: a known tool and arguments that fit its schema, or a refusal the model can read ([`arguments`],
//!    [`unwrapped`], [`coercion`] and [`validation`] are its parts);
//! 3. [`decided`]: allow, ask or deny by the rules; [`settled`]: by a person. Both make the permit;
//! 4. [`planned`]: the pure plan of a reply: answered, run, park, carry;
//! 5. [`executed`]: needs the permit; bounds what a tool does;
//!
//! [`repeated`] answers reads from memory where that is true.
//! 6. [`committed`]: one result per call, in order: record, then event ([`hints`] adds what to do next).

pub mod arguments;
pub mod checked;
pub mod coercion;
pub mod committed;
pub mod decided;
pub mod executed;
pub mod fanned;
pub mod hints;
pub mod planned;
pub mod proposed;
pub mod repeated;
pub mod settled;
pub mod unwrapped;
pub mod validation;
