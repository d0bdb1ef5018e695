//! Tries a request again: how often, how long after, and when not.
//!
//! Whether a failure may be temporary is decided where it is understood; here is only the waiting.

use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, SystemTime};

use super::trouble::Trouble;
use super::{Progress, ProviderError};
use crate::interrupt::Interrupt;

/// How often a request is sent at most.
pub const TRIES_MAX: u32 = 5;
/// The longest that a service's `Retry-After` is waited for.
pub const RETRY_AFTER_SECONDS_MAX: u64 = 60;

/// The delays between tries.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    pub tries_max: u32,
    /// Before the second try; it doubles from there, and a part of it, at most a quarter, is taken off by chance: enough
    /// that those who failed together do not come back together, too little for a delay that is not longer than the one
    /// before.
    pub first_delay: Duration,
}

impl Default for Schedule {
    fn default() -> Self {
        Self { tries_max: TRIES_MAX, first_delay: Duration::from_secs(1) }
    }
}

impl Schedule {
    /// The delay after that many tries (from 1). `chance` is anything from 0 to 1.
    fn delay(&self, tries: u32, chance: f64) -> Duration {
        let full = self.first_delay.saturating_mul(2_u32.saturating_pow(tries - 1));
        full.mul_f64(1.0 - chance.clamp(0.0, 1.0) / 4.0)
    }

    /// Calls `send` until it brings a reply, fails for good, or was called often enough. Each wait is told before it
    /// begins.
    pub fn run<T>(
        &self,
        provider: &str,
        interrupt: &Interrupt,
        observe: &mut dyn FnMut(Progress<'_>),
        mut send: impl FnMut(&mut dyn FnMut(Progress<'_>)) -> Result<T, Trouble>,
    ) -> Result<T, ProviderError> {
        let mut tries = 1;
        loop {
            let trouble = match send(observe) {
                Ok(reply) => return Ok(reply),
                Err(trouble) => trouble,
            };
            if !trouble.again {
                return Err(trouble.error);
            }
            let delay = match trouble.retry_after {
                Some(asked) if asked > Duration::from_secs(RETRY_AFTER_SECONDS_MAX) => {
                    return Err(later(trouble.error, asked));
                }
                // A service that says "now", or a time that is past, is believed once.
                Some(asked) if tries == 1 || !asked.is_zero() => asked,
                Some(_) | None => self.delay(tries, chance()),
            };
            if tries >= self.tries_max {
                return Err(exhausted(trouble.error, tries, trouble.retry_after));
            }
            tries += 1;
            let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
            observe(Progress::Retrying { attempt: tries, delay_ms, reason: &trouble.error.message });
            if interrupt.wait(delay) || interrupt.is_raised() {
                return Err(Trouble::interrupted(provider).error);
            }
        }
    }
}

/// The service named a time that is too far off to wait for.
fn later(mut error: ProviderError, asked: Duration) -> ProviderError {
    let seconds = asked.as_secs();
    let at = jiff::Timestamp::now()
        .checked_add(jiff::SignedDuration::try_from(asked).unwrap_or(jiff::SignedDuration::MAX))
        .and_then(|at| at.round(jiff::Unit::Second))
        .map_or_else(|_| String::new(), |at| format!(" (at {at})"));
    error.message = format!("{}; it asks to wait for {seconds} s", error.message);
    error.hint = Some(format!("try again in {seconds} s{at}"));
    error.retryable = true;
    error
}

fn exhausted(mut error: ProviderError, tries: u32, retry_after: Option<Duration>) -> ProviderError {
    error.message = format!("{} (tried {tries} times)", error.message);
    if let Some(asked) = retry_after {
        error.hint = Some(format!("it asks to wait for {} s before the next try", asked.as_secs_f64().ceil()));
    }
    error
}

/// A number from 0 to 1, another one at each call.
fn chance() -> f64 {
    let number = std::hash::RandomState::new().build_hasher().finish() >> 32;
    u32::try_from(number).map_or(0.0, |number| f64::from(number) / f64::from(u32::MAX))
}

/// The time that a `Retry-After` header names: seconds, or an HTTP date; what is neither counts as absent.
pub fn parse_retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<f64>() {
        return match Duration::try_from_secs_f64(seconds) {
            Ok(delay) => Some(delay),
            Err(_) if seconds > 0.0 => Some(Duration::MAX),
            Err(_) => None,
        };
    }
    let at = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(value).ok()?;
    Some(SystemTime::try_from(at).ok()?.duration_since(now).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupt::Cause;

    const FAST: Schedule = Schedule { tries_max: 5, first_delay: Duration::ZERO };

    fn run(failures: &[Trouble], interrupt: &Interrupt) -> (Result<usize, ProviderError>, Vec<(u32, u64)>) {
        let mut waits = Vec::new();
        let mut sent = 0;
        let mut observe = |progress: Progress<'_>| match progress {
            Progress::Retrying { attempt, delay_ms, .. } => waits.push((attempt, delay_ms)),
            Progress::Text(_) | Progress::Reasoning(_) => {}
        };
        let result = FAST.run("acme", interrupt, &mut observe, |_| {
            sent += 1;
            failures.get(sent - 1).cloned().map_or(Ok(sent), Err)
        });
        (result, waits)
    }

    fn after(delay: Duration) -> Trouble {
        Trouble { retry_after: Some(delay), ..Trouble::broken_off("slow down") }
    }

    #[test]
    fn the_delay_doubles_from_at_most_a_second() {
        let schedule = Schedule::default();
        for (tries, full_ms) in [(1, 1000), (2, 2000), (3, 4000), (4, 8000)] {
            assert_eq!(schedule.delay(tries, 0.0), Duration::from_millis(full_ms));
            assert_eq!(schedule.delay(tries, 1.0), Duration::from_millis(full_ms * 3 / 4));
        }
        assert!((0..1000).map(|_| chance()).all(|chance| (0.0..=1.0).contains(&chance)));
        assert!((0..10).map(|_| chance()).any(|other| other.to_bits() != chance().to_bits()));
    }

    #[test]
    fn it_stops_at_a_reply_a_lasting_error_or_the_last_try() {
        let interrupt = Interrupt::default();
        assert_eq!(run(&[], &interrupt), (Ok(1), vec![]));
        let broken = || Trouble::broken_off("cut");
        assert_eq!(run(&[broken(), broken()], &interrupt), (Ok(3), vec![(2, 0), (3, 0)]));
        let (result, waits) = run(&[broken(), Trouble::lasting("no")], &interrupt);
        assert_eq!((result.unwrap_err().message.as_str(), waits.len()), ("no", 1));
        let (result, waits) = run(&std::array::from_fn::<_, 9, _>(|_| broken()), &interrupt);
        let error = result.unwrap_err();
        assert_eq!((error.message.as_str(), error.retryable, waits.len()), ("cut (tried 5 times)", true, 4));
        assert_eq!(error.hint, None);
        let (result, _) = run(&std::array::from_fn::<_, 9, _>(|_| after(Duration::from_millis(3))), &interrupt);
        assert_eq!(result.unwrap_err().hint.unwrap(), "it asks to wait for 1 s before the next try");
    }

    #[test]
    fn the_services_delay_counts_up_to_a_minute() {
        let interrupt = Interrupt::default();
        assert_eq!(run(&[after(Duration::from_millis(3))], &interrupt), (Ok(2), vec![(2, 3)]));
        let (result, waits) = run(&[after(Duration::from_secs(61))], &interrupt);
        let error = result.unwrap_err();
        assert_eq!(waits, []);
        assert_eq!(error.message, "slow down; it asks to wait for 61 s");
        assert!(error.hint.unwrap().starts_with("try again in 61 s (at 2"));
        let (result, _) = run(&[after(Duration::MAX)], &interrupt);
        assert!(result.is_err());
    }

    #[test]
    fn a_delay_of_nothing_is_no_way_around_the_schedule() {
        let slow = Schedule { tries_max: 5, first_delay: Duration::from_millis(4) };
        let mut waits = Vec::new();
        let mut observe = |progress: Progress<'_>| {
            if let Progress::Retrying { delay_ms, .. } = progress {
                waits.push(delay_ms);
            }
        };
        let result = slow.run("acme", &Interrupt::default(), &mut observe, |_| Err::<(), _>(after(Duration::ZERO)));
        assert!(result.is_err());
        assert_eq!((waits[0], waits.len()), (0, 4));
        assert!(
            (6..=8).contains(&waits[1]) && (12..=16).contains(&waits[2]) && (24..=32).contains(&waits[3]),
            "{waits:?}"
        );
    }

    #[test]
    fn an_interrupt_ends_the_waiting() {
        let interrupt = Interrupt::default();
        interrupt.raise(Cause::TimeLimit);
        let (result, waits) = run(&[after(Duration::from_secs(60))], &interrupt);
        assert_eq!((result.unwrap_err().interrupted, waits), (true, vec![(2, 60_000)]));
    }

    #[test]
    fn retry_after_is_read_in_both_forms() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_700);
        let cases = [
            ("0", Some(Duration::ZERO)),
            (" 7 ", Some(Duration::from_secs(7))),
            ("1.5", Some(Duration::from_millis(1500))),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(Duration::from_secs(77))),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(Duration::ZERO)),
            ("18446744073709551616", Some(Duration::MAX)),
            ("-3", None),
            ("NaN", None),
            ("soon", None),
            ("", None),
        ];
        for (value, expected) in cases {
            assert_eq!(parse_retry_after(value, now), expected, "{value:?}");
        }
    }
}
