//! One target under libFuzzer: `FUZZ_TARGET` names it while this is compiled (scripts/fuzz).

#![no_main]
#![allow(clippy::print_stdout, reason = "scripts/fuzz reads it")]

use std::path::Path;
use std::process::exit;
use std::{env, fs, io};

use fuzz::{Target, corpus};
use libfuzzer_sys::fuzz_target;

const TARGET: Target = fuzz::target(env!("FUZZ_TARGET"));

fuzz_target!(init: prepare(), |bytes: &[u8]| TARGET.check(bytes));

/// Does what the environment asks for instead of fuzzing.
fn prepare() {
    let done = if let Ok(dir) = env::var("FUZZ_UNPACK") {
        unpack(Path::new(&dir))
    } else if let Ok(dir) = env::var("FUZZ_PACK") {
        pack(Path::new(&dir))
    } else {
        return;
    };
    if let Err(error) = done {
        eprintln!("{}: {error}", TARGET.name);
        exit(2);
    }
    exit(0);
}

/// Puts the corpus into a directory, as libFuzzer wants it, and says how long inputs may be.
fn unpack(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for (at, input) in corpus::read(TARGET.name)?.iter().enumerate() {
        fs::write(dir.join(format!("kept-{at:04}")), input)?;
    }
    println!("{}", TARGET.longest);
    Ok(())
}

/// Makes the corpus of the files of a directory.
fn pack(dir: &Path) -> io::Result<()> {
    let files = fs::read_dir(dir)?.map(|file| fs::read(file?.path()));
    corpus::write(TARGET.name, files.collect::<Result<_, _>>()?)
}
