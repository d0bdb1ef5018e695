//! Text that a command was told to read from stdin, bounded and decoded.

use std::io::Read;

use crate::failure::Failure;

/// What is read, in words for the person, and how much of it there may be.
pub(super) struct Input {
    pub what: &'static str,
    pub bytes_max: u64,
    pub too_long_hint: &'static str,
}

impl Input {
    /// Refuses (2) what is too long, wherever it came from.
    pub(super) fn ensure_fits(&self, text: &str) -> Result<(), Failure> {
        if text.len() as u64 > self.bytes_max { Err(self.too_long()) } else { Ok(()) }
    }

    fn too_long(&self) -> Failure {
        Failure::usage(format!("{} is longer than {} bytes", self.what, self.bytes_max)).hint(self.too_long_hint)
    }
}

/// All of stdin, to its end.
pub(super) fn read(input: &Input) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .take(input.bytes_max + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::usage(format!("stdin cannot be read: {error}")))?;
    if bytes.len() as u64 > input.bytes_max {
        return Err(input.too_long());
    }
    String::from_utf8(bytes).map_err(|_| Failure::usage("stdin is not UTF-8 text"))
}
