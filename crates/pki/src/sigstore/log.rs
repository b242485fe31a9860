//! Proofs that a transparency log has an entry: the log's signed promise, or the entry's way to the root of
//! a tree that the log signed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::key::PublicKey;
use super::{Refused, bytes};

/// An entry of a log, with its proofs.
#[derive(Clone, Debug)]
pub(super) struct LogEntry {
    /// As the log has it.
    pub(super) body: Vec<u8>,
    /// When the log took it in, in seconds.
    time: u64,
    index: u64,
    /// SHA-256 of the log's key.
    log: Vec<u8>,
    promise: Option<Vec<u8>>,
    inclusion: Option<Inclusion>,
}

#[derive(Clone, Debug)]
struct Inclusion {
    index: u64,
    size: u64,
    root: Vec<u8>,
    hashes: Vec<Vec<u8>>,
    checkpoint: String,
}

impl LogEntry {
    /// Reads cosign's annotation `bundle`.
    pub(super) fn of_annotation(bundle: &Value) -> Result<Self, Refused> {
        let payload = &bundle["Payload"];
        let number = |field: &str| {
            let missing = || Refused::new(format!("the log's entry has no {field}"));
            payload[field].as_u64().ok_or_else(missing)
        };
        let log = payload["logID"].as_str().and_then(hex);
        Ok(Self {
            body: bytes(&payload["body"])?,
            time: number("integratedTime")?,
            index: number("logIndex")?,
            log: log.ok_or_else(|| Refused::new("the log's entry does not name its log"))?,
            promise: Some(bytes(&bundle["SignedEntryTimestamp"])?),
            inclusion: None,
        })
    }

    /// Reads an entry of a bundle.
    pub(super) fn of_bundle(entry: &Value) -> Result<Self, Refused> {
        // Numbers of 64 bits are texts in JSON of protobuf; zero is left out.
        let number = |value: &Value| match value {
            Value::Null => Some(0),
            Value::String(text) => text.parse().ok(),
            value => value.as_u64(),
        };
        let wrong = || Refused::new("the log's entry in the bundle cannot be read");
        let promise = &entry["inclusionPromise"]["signedEntryTimestamp"];
        let proof = &entry["inclusionProof"];
        let inclusion = if proof.is_null() {
            None
        } else {
            let hashes = proof["hashes"].as_array().into_iter().flatten().map(bytes);
            Some(Inclusion {
                index: number(&proof["logIndex"]).ok_or_else(wrong)?,
                size: number(&proof["treeSize"]).ok_or_else(wrong)?,
                root: bytes(&proof["rootHash"])?,
                hashes: hashes.collect::<Result<_, _>>()?,
                checkpoint: proof["checkpoint"]["envelope"].as_str().unwrap_or_default().to_owned(),
            })
        };
        Ok(Self {
            body: bytes(&entry["canonicalizedBody"])?,
            time: number(&entry["integratedTime"]).ok_or_else(wrong)?,
            index: number(&entry["logIndex"]).ok_or_else(wrong)?,
            log: bytes(&entry["logId"]["keyId"])?,
            promise: if promise.is_null() { None } else { Some(bytes(promise)?) },
            inclusion,
        })
    }

    /// Whether a trusted log has it; answers when it was taken in. The time is the log's word only in a
    /// promise: a proof of inclusion alone says nothing of it.
    pub(super) fn proven(&self, keys: &[PublicKey]) -> Result<u64, Refused> {
        let Some(key) = keys.iter().find(|key| key.id() == *self.log) else {
            return Err(Refused::new("the signature is in a log that is not trusted"));
        };
        let Some(promise) = &self.promise else {
            return Err(Refused::new(
                "the signature has no promise of the log that says when it was made",
            ));
        };
        // Keys in the order of RFC 8785, which is that of a serde_json map.
        let message = json!({
            "body": STANDARD.encode(&self.body), "integratedTime": self.time,
            "logID": hex_of(&self.log), "logIndex": self.index,
        });
        if !key.signed(message.to_string().as_bytes(), promise) {
            return Err(Refused::new("the log's promise is not signed by the log"));
        }
        if let Some(inclusion) = &self.inclusion {
            inclusion.proves(&self.body, key)?;
        }
        Ok(self.time)
    }
}

impl Inclusion {
    fn proves(&self, body: &[u8], key: &PublicKey) -> Result<(), Refused> {
        let leaf = hash(&[0], body, &[]);
        if self.root_of(leaf).as_deref() != Some(&self.root) {
            return Err(Refused::new("the log's proof does not lead to the root of its tree"));
        }
        self.is_signed(key).ok_or_else(|| {
            Refused::new("the root of the log's tree is not in a checkpoint that the log signed")
        })
    }

    /// The root to which the way leads: RFC 9162, section 2.1.3.2.
    fn root_of(&self, leaf: [u8; 32]) -> Option<Vec<u8>> {
        if self.index >= self.size {
            return None;
        }
        let (mut node, mut last, mut at) = (self.index, self.size - 1, leaf);
        for sibling in &self.hashes {
            if last == 0 {
                return None;
            }
            if node & 1 == 1 || node == last {
                at = hash(&[1], sibling, &at);
                while node & 1 == 0 && node != 0 {
                    (node, last) = (node >> 1, last >> 1);
                }
            } else {
                at = hash(&[1], &at, sibling);
            }
            (node, last) = (node >> 1, last >> 1);
        }
        (last == 0).then(|| at.to_vec())
    }

    /// Whether the checkpoint, a signed note, is the log's and says size and root.
    fn is_signed(&self, key: &PublicKey) -> Option<()> {
        let (text, signatures) = self.checkpoint.split_once("\n\n")?;
        let mut lines = text.lines();
        let (_, size, root) = (lines.next()?, lines.next()?, lines.next()?);
        let says = size.parse() == Ok(self.size) && STANDARD.decode(root).ok()? == self.root;
        let note = format!("{text}\n");
        let mut signatures = signatures.lines().filter_map(|line| {
            let signature = line.strip_prefix('\u{2014}')?.split_whitespace().last()?;
            STANDARD.decode(signature).ok()
        });
        let signed = signatures.any(|signature| {
            signature.get(..4) == key.id().get(..4) && key.signed(note.as_bytes(), &signature[4..])
        });
        (says && signed).then_some(())
    }
}

fn hash(prefix: &[u8], first: &[u8], second: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(prefix);
    hash.update(first);
    hash.update(second);
    hash.finalize().into()
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.map(byte).collect()
}

pub(super) fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
