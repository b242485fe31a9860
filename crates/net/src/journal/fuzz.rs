use super::*;

/// A journal as a crash or a bad disk may have left it, and one frame whose sum is right. What is replayed and
/// written again is replayed as the same; what a crash left is cut off once.
pub fn address_journal(bytes: &[u8]) {
    replayed(bytes);
    if let Some(records) = bytes.strip_prefix(b"=") {
        let mut frame = vec![0; HEADER];
        frame[0..4].copy_from_slice(&MAGIC);
        frame[4..8].copy_from_slice(&(records.len() as u32).to_le_bytes());
        let sum = checksum(&frame[4..16], records);
        frame[16..20].copy_from_slice(&sum.to_le_bytes());
        frame.extend(records);
        replayed(&frame);
    }
}

fn replayed(bytes: &[u8]) {
    let Ok(Replayed { table, good }) = replay(bytes) else { return };
    let whole = replay(&bytes[..good]).expect("what is good stays so");
    assert_eq!(whole.good, good);
    let records: Vec<Record> = table.records().collect();
    let written = frame(&records, 0).expect("records that were read are short enough");
    let again = replay(&written).expect("what was written is replayed");
    assert_eq!(again.good, written.len());
    assert_eq!(again.table.records().collect::<Vec<_>>(), records);
}
