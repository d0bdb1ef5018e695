//! The time, as records, events and file names write it.
//!
//! For reading by people and scripts. Nothing is ever decided by it; durations are measured with `std::time::Instant`.

/// RFC 3339 UTC with milliseconds: `2026-11-30T15:04:05.678Z`.
pub fn now() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}

/// The same moment without the characters that some file systems refuse: `20261130T150405.678Z`.
pub fn now_for_file_names() -> String {
    now().replace(['-', ':'], "")
}

/// The date alone, in UTC.
pub fn today() -> String {
    now().chars().take_while(|character| *character != 'T').collect()
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
