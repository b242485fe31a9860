//! Services across clusters, by the multicluster API (KEP-1645, `multicluster.x-k8s.io`).
//!
//! ```text
//! ServiceExport, Service, EndpointSlice ──► ServicePlanner ──► per cluster: ServiceImport,
//! of every cluster                          (pure)             derived Service, EndpointSlices
//! ```
//!
//! Names are the mesh's: a Service `web` in the namespace `shop` of one cluster and one of the same name
//! and namespace in another are the same Service. DNS is left to the cluster: CoreDNS' multicluster plugin
//! reads what is written here; without it the derived Service has a name of its own.

mod objects;
mod plan;
mod planner;

pub(crate) use objects::{ENDPOINT_SLICES, SERVICE_EXPORTS, SERVICE_IMPORTS};
pub use objects::{
    Endpoint, EndpointConditions, EndpointPort, EndpointSlice, ImportType, ImportedPort,
    ServiceExport, ServiceExportStatus, ServiceImport, ServiceImportSpec, ServiceImportStatus,
    SourceClusterName, service_export_crd, service_import_crd,
};
pub(crate) use plan::{SERVICE_NAME, SLICE_SERVICE, SOURCE_CLUSTER};
pub use plan::{ServiceChange, ServiceContext, ServiceWrite, Written};
pub use planner::{ClusterServices, ServicePlanner};
