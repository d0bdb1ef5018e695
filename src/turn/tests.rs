//! Whole turns with fake tools and a fake model, in a session on disk: what is recorded, what ran, and what is left
//! when something dies in between.

mod crash;
mod denials;
mod fan_out;
mod house;
mod interrupts;
mod limits;
mod messages;
mod order;
mod patches;
mod persistence;
