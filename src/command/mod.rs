//! One file a subcommand: from arguments to domain calls to lines.

pub mod completions;
pub mod usage;

use crate::cli::{ColorWhen, GlobalOptions, OnAsk, OutputFormat};
use crate::report::{Mode, Volume};
use crate::session::record;

// The command line knows nothing of the rest of attini, so what its words mean there is said here.

impl From<OutputFormat> for Mode {
    fn from(format: OutputFormat) -> Self {
        match format {
            OutputFormat::Text => Self::Text,
            OutputFormat::Json => Self::Json,
            OutputFormat::Events => Self::Events,
        }
    }
}

impl From<OnAsk> for record::OnAsk {
    fn from(on_ask: OnAsk) -> Self {
        match on_ask {
            OnAsk::Suspend => Self::Suspend,
            OnAsk::Deny => Self::Deny,
            OnAsk::Fail => Self::Fail,
        }
    }
}

/// How much of progress the person wants to see.
pub const fn volume(global: &GlobalOptions) -> Volume {
    match (global.quiet, global.verbose) {
        (true, _) => Volume::Quiet,
        (false, true) => Volume::Verbose,
        (false, false) => Volume::Normal,
    }
}

/// Whether to colour, where the person said so; `None`: by what the stream is.
pub const fn colour_asked_for(color: ColorWhen) -> Option<bool> {
    match color {
        ColorWhen::Auto => None,
        ColorWhen::Always => Some(true),
        ColorWhen::Never => Some(false),
    }
}
