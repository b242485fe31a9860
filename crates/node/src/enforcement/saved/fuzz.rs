use super::*;

/// The file of a program. One that was read and saved again is read as the same.
pub fn program_file(bytes: &[u8]) {
    let read = |bytes: &[u8]| {
        let saved: SavedProgram = serde_json::from_slice(bytes).ok()?;
        saved.program().ok().filter(|program| program.check().is_ok())
    };
    let Some(program) = read(bytes) else { return };
    let again = serde_json::to_vec(&SavedProgram::of(&program)).expect("a program is plain values");
    assert_eq!(read(&again).as_ref(), Some(&program));
}
