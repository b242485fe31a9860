//! Thread dumps of Java, Python and native programs (Rust, C), read into one [`ThreadDump`].
//!
//! ```text
//! line ─► Reader ─┬─► java    jstack, jcmd Thread.print, Thread.dump_to_file ─┐
//!                 ├─► python  py-spy dump, faulthandler                       ├─► ThreadDump ─► diagnose
//!                 └─► native  gdb, eu-stack, Fairlead's /debug/stacks         ┘
//! ```
//!
//! A text is read line by line and is not kept; a JSON document is read whole, within the bound
//! that [`crate::input`] sets. Java prints which thread has which lock. The other forms do not, and
//! there a holder is inferred from the frames, and called *possible* or *likely*, never *certain*.

mod analysis;
mod document;
mod dump;
mod java;
mod name;
mod native;
mod python;
mod wait;

pub(crate) use analysis::diagnose;
pub(crate) use document::{begins as begins_document, parse as parse_document};
pub use dump::ThreadDump;
use dump::{Builder, Runtime};

/// Reads the thread dumps of one text, line by line.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    open: Option<Open>,
    finished: Vec<ThreadDump>,
}

/// The dump that is being read.
#[derive(Debug)]
struct Open {
    builder: Builder,
    form: Form,
    /// Bytes that a log writes before each line.
    prefix: usize,
    /// Lines since one that belonged to the dump.
    since: u32,
}

/// The forms that are read line by line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `jstack`, `jcmd Thread.print`, SIGQUIT.
    JavaPrint,
    /// `jcmd Thread.dump_to_file -format=plain`.
    JavaFile,
    PySpy,
    FaultHandler,
    Gdb,
    EuStack,
    /// `/debug/stacks` of Fairlead.
    Own,
}

impl Form {
    fn runtime(self) -> Runtime {
        match self {
            Self::JavaPrint | Self::JavaFile => Runtime::Java,
            Self::PySpy | Self::FaultHandler => Runtime::Python,
            Self::Gdb | Self::EuStack | Self::Own => Runtime::Native,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::JavaPrint => "Java thread dump",
            Self::JavaFile => "Java thread dump, Thread.dump_to_file",
            Self::PySpy => "Python thread dump, py-spy",
            Self::FaultHandler => "Python thread dump, faulthandler",
            Self::Gdb => "thread dump, gdb",
            Self::EuStack => "thread dump, eu-stack",
            Self::Own => "Fairlead's threads",
        }
    }

    /// The form that a line begins a thread of, and where in the line it does.
    fn begun_by(line: &[u8]) -> Option<(Self, usize)> {
        let form = match line.first()? {
            b'"' if java::is_header(line) => Self::JavaPrint,
            b'#' if java::is_file_header(line) => Self::JavaFile,
            b'T' if native::is_gdb_header(line) => Self::Gdb,
            b'T' if native::is_eu_header(line) => Self::EuStack,
            b'T' | b'C' if python::is_fault_header(line) => Self::FaultHandler,
            b'T' if python::is_spy_header(line) => Self::PySpy,
            b't' if native::is_own_header(line) => Self::Own,
            // A SIGQUIT's dump in a log: its title tells where the log's own words end.
            b'F' | b'0'..=b'9' | b'[' | b'A'..=b'S' => {
                let at = java::title(line)?;
                return Some((Self::JavaPrint, at));
            }
            _ => return None,
        };
        Some((form, 0))
    }
}

/// So many lines of something else end a dump: what comes after is another.
const APART: u32 = 10_000;

impl Reader {
    /// Takes a line where it belongs to a thread dump, and says whether it does.
    pub(crate) fn line(&mut self, input: &str, number: u64, line: &[u8]) -> bool {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        if let Some(open) = &mut self.open {
            let text = line.get(open.prefix..).unwrap_or(&[]);
            let begun = Form::begun_by(text).map(|(form, _)| form);
            if begun == Some(open.form) && !java::is_title(text) {
                if open.begin(number, text) {
                    return true;
                }
                // The thread is in the dump already, so that this is the next dump.
                self.close();
            } else if begun.is_none() && open.part(number, text) {
                open.since = 0;
                return true;
            } else {
                open.since += 1;
                if begun.is_some() || open.since > APART {
                    self.close();
                }
            }
        }
        let Some((form, prefix)) = Form::begun_by(line) else {
            return false;
        };
        let text = &line[prefix..];
        let builder = Builder::new(input, form.runtime(), form.name(), number);
        let mut open = Open { builder, form, prefix, since: 0 };
        if !java::is_title(text) {
            open.begin(number, text);
        }
        self.open = Some(open);
        true
    }

    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            self.finished.extend(open.builder.finish());
        }
    }

    /// The dumps that were read.
    pub(crate) fn finish(mut self) -> Vec<ThreadDump> {
        self.close();
        self.finished
    }
}

impl Open {
    /// Begins a thread; false: the dump has it already.
    fn begin(&mut self, number: u32, line: &[u8]) -> bool {
        self.since = 0;
        let builder = &mut self.builder;
        match self.form {
            Form::JavaPrint => java::begin(builder, number, line),
            Form::JavaFile => java::begin_file(builder, number, line),
            Form::PySpy => python::begin_spy(builder, number, line),
            Form::FaultHandler => python::begin_fault(builder, number, line),
            Form::Gdb => native::begin_gdb(builder, number, line),
            Form::EuStack => native::begin_eu(builder, number, line),
            Form::Own => native::begin_own(builder, number, line),
        }
    }

    /// Takes a line within a thread.
    fn part(&mut self, number: u32, line: &[u8]) -> bool {
        let builder = &mut self.builder;
        match self.form {
            Form::JavaPrint | Form::JavaFile => java::part(builder, number, line),
            Form::PySpy => python::spy_part(builder, number, line),
            Form::FaultHandler => python::fault_part(builder, number, line),
            Form::Gdb | Form::EuStack => native::frame_part(builder, number, line),
            Form::Own => native::own_part(builder, number, line),
        }
    }
}

#[cfg(test)]
mod tests;
