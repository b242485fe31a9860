//! CHECK: compares the record, the runtime's `prevResult` and the kernel.

use std::net::IpAddr;
use std::os::fd::OwnedFd;

use stallproof::Deadline;

use super::{CniService, RequestError, StepTracker};
use crate::AttachmentKey;
use crate::datapath::Datapath;

impl<D: Datapath> CniService<D> {
    pub(super) async fn check(
        &self,
        key: AttachmentKey,
        addresses: &[IpAddr],
        descriptor: Option<OwnedFd>,
        deadline: Deadline,
    ) -> Result<(), RequestError> {
        let call = self.begin("cni_check", key.clone(), None, deadline);
        let job = async {
            let record = self.0.addresses.view().attachment(&key).cloned();
            let record = record.ok_or_else(|| RequestError::UnknownAttachment(key.clone()))?;
            let namespace = self.hold(descriptor)?;
            let unnamed = record.addresses().filter(|address| !addresses.contains(address));
            let unnamed = unnamed.map(|own| format!("prevResult does not name the address {own}"));
            let mut differences: Vec<_> = unnamed.collect();
            if self.0.datapath.id(&namespace) != record.namespace {
                differences.push("the container is in another network namespace".to_owned());
            } else {
                let interface = record.host_interface.clone();
                let verify = move |datapath: &D, steps: &StepTracker| {
                    // There is nothing to undo, so it goes on to its end.
                    let _ = steps.step("verify");
                    Ok(datapath.verify(&record, Some(&namespace)))
                };
                let faults = self.work("check", &call, &interface, verify, |_, _| ()).await?;
                differences.extend(faults.iter().map(ToString::to_string));
            }
            match differences.is_empty() {
                true => Ok(()),
                false => Err(RequestError::Differs { key: key.clone(), differences }),
            }
        };
        let result = self.turn(&call, job).await;
        call.finish(&result);
        result
    }
}
