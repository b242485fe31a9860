//! `Record`: the objects of an installation, kept in the cluster itself, so that an upgrade knows what to
//! remove and what to roll back to, and an uninstall what to remove.

use std::io::{Read, Write};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Error, Reference};

/// The ConfigMap's name.
const NAME: &str = "fairlead-install";
/// A record is a few hundred kilobytes of JSON; a larger one is damaged.
const LARGEST: u64 = 16 << 20;

/// One installation.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub version: String,
    /// The values that the user chose, with which an upgrade begins.
    pub chosen: Value,
    /// All values, with the chart's defaults.
    pub values: Value,
    /// Every object as it was applied.
    pub objects: Vec<Value>,
}

/// Why a record could not be read. It must not be taken for none, or its objects would be left behind.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error(transparent)]
    Cluster(#[from] Error),
    #[error(
        "the record of the installation (ConfigMap {0}/{NAME}) is damaged: delete it and run `fairlead install` again, which takes over what is there"
    )]
    Damaged(String),
}

fn reference(namespace: &str) -> Reference {
    Reference::new("v1", "ConfigMap", Some(namespace), NAME)
}

impl Record {
    /// Reads the record; `None` if `fairlead install` has installed nothing.
    pub async fn read(cluster: &Cluster, namespace: &str) -> Result<Option<Self>, RecordError> {
        let Some(kept) = cluster.get(&reference(namespace)).await? else { return Ok(None) };
        match Self::unpack(&kept) {
            Some(record) => Ok(Some(record)),
            None => Err(RecordError::Damaged(namespace.to_owned())),
        }
    }

    pub async fn write(&self, cluster: &Cluster, namespace: &str) -> Result<(), Error> {
        cluster.apply(&self.pack(namespace)).await.map(|_| ())
    }

    pub async fn remove(cluster: &Cluster, namespace: &str) -> Result<bool, Error> {
        cluster.delete(&reference(namespace)).await
    }

    /// The addresses of its objects.
    pub fn references(&self) -> Vec<Reference> {
        self.objects.iter().filter_map(Reference::of).collect()
    }

    fn pack(&self, namespace: &str) -> Value {
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        let objects = serde_json::to_vec(&self.objects).unwrap_or_default();
        // Writing to memory does not fail.
        let packed = packed.write_all(&objects).and_then(|()| packed.finish()).unwrap_or_default();
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": NAME,
                "namespace": namespace,
                "labels": {"app.kubernetes.io/part-of": "fairlead"},
            },
            "data": {
                "version": self.version,
                "chosen": self.chosen.to_string(),
                "values": self.values.to_string(),
            },
            "binaryData": {"objects": BASE64_STANDARD.encode(packed)},
        })
    }

    fn unpack(kept: &Value) -> Option<Self> {
        let packed = BASE64_STANDARD.decode(kept["binaryData"]["objects"].as_str()?).ok()?;
        let mut text = Vec::new();
        GzDecoder::new(packed.as_slice()).take(LARGEST).read_to_end(&mut text).ok()?;
        let data = &kept["data"];
        Some(Self {
            version: data["version"].as_str()?.to_owned(),
            chosen: serde_json::from_str(data["chosen"].as_str()?).ok()?,
            values: serde_json::from_str(data["values"].as_str()?).ok()?,
            objects: serde_json::from_slice(&text).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            version: "0.2.0".to_owned(),
            chosen: json!({"components": {"net": false}}),
            values: json!({"components": {"net": false, "guard": true}}),
            objects: vec![json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"name": "fairlead", "namespace": "fairlead"},
            })],
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let record = record();
        let packed = record.pack("fairlead");
        assert_eq!(Record::unpack(&packed), Some(record.clone()));
        let named = record.references();
        assert_eq!(named[0].to_string(), "Service fairlead/fairlead");
    }

    #[test]
    fn a_record_that_somebody_changed_is_none_at_all() {
        let mut packed = record().pack("fairlead");
        packed["binaryData"]["objects"] = json!("bm90IGd6aXA=");
        assert_eq!(Record::unpack(&packed), None);
        let mut packed = record().pack("fairlead");
        packed["data"]["values"] = json!("{");
        assert_eq!(Record::unpack(&packed), None);
    }
}
