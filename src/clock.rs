//! The time as records and events hold it: RFC 3339 in UTC with milliseconds.
//!
//! For reading by people and scripts. Nothing is ever decided by it; durations are measured with `std::time::Instant`.

/// The time now, as in `2026-11-30T15:28:04.120Z`.
pub fn now() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_milliseconds_and_is_utc() {
        let text = now();
        assert_eq!(text.len(), "2026-11-30T15:28:04.120Z".len(), "{text}");
        assert!(text.ends_with('Z'), "{text}");
        let parsed: jiff::Timestamp = text.parse().unwrap();
        assert_eq!(format!("{parsed:.3}"), text);
    }
}
