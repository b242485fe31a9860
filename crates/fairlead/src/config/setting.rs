//! What one setting is, and the macro that declares a section of them.

use super::Config;
use super::formats::Format;

/// One setting, whatever its type.
pub(crate) struct Setting {
    pub(crate) key: &'static str,
    /// Stands for the value in help.
    pub(super) metavar: &'static str,
    pub(super) help: &'static str,
    /// Completes "expected …".
    pub(super) expected: String,
    pub(super) take: Take,
    pub(super) show: Show,
}

type Take = Box<dyn Fn(&mut Config, &str) -> Option<()> + Send + Sync>;
type Show = Box<dyn Fn(&Config) -> String + Send + Sync>;

impl Setting {
    pub(super) fn new<T: 'static>(
        (key, metavar, help): (&'static str, &'static str, &'static str),
        Format { expected, read, show }: Format<T>,
        field: fn(&Config) -> &T,
        field_mut: fn(&mut Config) -> &mut T,
    ) -> Self {
        Self {
            key,
            metavar,
            help: help.trim_start(),
            expected,
            take: Box::new(move |config, text| read(text).map(|value| *field_mut(config) = value)),
            show: Box::new(move |config| show(field(config))),
        }
    }

    pub(super) fn flag(&self) -> String {
        self.key.replace('.', "-")
    }

    pub(super) fn env(&self) -> String {
        format!("FAIRLEAD_{}", self.key.replace(['.', '-'], "_").to_uppercase())
    }
}

/// Declares a section: its struct, its defaults, and its settings.
///
/// A field with `#[setting(KEY, METAVAR, FORMAT)]` is a setting; its doc comment is its help. From the key
/// come the flag, the variable and the place in YAML. Other fields only have a default.
macro_rules! settings {
    (
        $(#[$about:meta])*
        struct $section:ident in $place:tt {
            $(
                $(#[doc = $help:literal])+
                $(#[setting($key:literal, $metavar:literal, $format:expr)])?
                $field:ident: $type:ty = $default:expr,
            )+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug)]
        pub(crate) struct $section {
            $($(#[doc = $help])+ pub(crate) $field: $type,)+
        }

        impl Default for $section {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl $section {
            fn settings() -> Vec<Setting> {
                [$(settings!(@setting $place $field [$($help),+] $($key, $metavar, $format)?),)+]
                    .into_iter()
                    .flatten()
                    .collect()
            }
        }
    };
    (@setting $place:tt $field:ident [$($help:literal),+]) => {
        None
    };
    (
        @setting ($config:ident $($section:tt)*) $field:ident [$($help:literal),+]
        $key:literal, $metavar:literal, $format:expr
    ) => {
        Some(Setting::new(
            ($key, $metavar, concat!($($help),+)),
            $format,
            |$config| &$config $($section)* .$field,
            |$config| &mut $config $($section)* .$field,
        ))
    };
}

pub(super) use settings;
