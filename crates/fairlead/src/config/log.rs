//! The log.

use super::Setting;
use crate::cli::values;

#[derive(Clone, Debug)]
pub(crate) struct Log {
    pub(crate) level: String,
    pub(crate) format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Auto,
    Human,
    Json,
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Auto }
    }
}

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        key: "log.level",
        metavar: "LEVEL",
        help: "What is logged; changeable while running",
        allowed: "a level (error, warn, info, debug, trace) or directives such as info,fleet=debug",
        take: |c, v| values::log_level(v).map(|v| c.log.level = v),
        show: |c| c.log.level.clone(),
    },
    Setting {
        key: "log.format",
        metavar: "FORMAT",
        help: "How it is logged; `auto` is human on a terminal, JSON otherwise",
        allowed: "auto, human or json",
        take: |c, v| {
            c.log.format = match v {
                "auto" => LogFormat::Auto,
                "human" => LogFormat::Human,
                "json" => LogFormat::Json,
                _ => return None,
            };
            Some(())
        },
        show: |c| {
            match c.log.format {
                LogFormat::Auto => "auto",
                LogFormat::Human => "human",
                LogFormat::Json => "json",
            }
            .to_owned()
        },
    },
];
