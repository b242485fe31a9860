use std::io::Write as _;

use super::*;

#[test]
fn a_revision_is_read_as_helm_wrote_it_and_has_no_values() {
    let release = json!({ "name": "web", "config": { "password": "hunter2" },
        "info": { "description": "Upgrade complete", "last_deployed": "2026-01-02T03:04:05Z" },
        "chart": { "metadata": { "name": "nginx", "version": "1.2.3", "appVersion": "9" } } });
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(release.to_string().as_bytes()).unwrap();
    let text = STANDARD.encode(STANDARD.encode(gzip.finish().unwrap()));
    let secret: DynamicObject = serde_json::from_value(json!({
        "metadata": { "name": "sh.helm.release.v1.web.v2", "namespace": "shop",
            "labels": { "name": "web", "owner": "helm", "status": "deployed", "version": "2",
                "modifiedAt": "1767323045" } },
        "data": { "release": text },
    }))
    .unwrap();
    let told = revision(&secret).unwrap();
    assert_eq!((told.revision, told.chart.as_deref()), (2, Some("nginx-1.2.3")));
    assert_eq!(told.description.as_deref(), Some("Upgrade complete"));
    assert!(!serde_json::to_string(&told).unwrap().contains("hunter2"));
    let mut broken = secret;
    broken.data["data"]["release"] = json!("not base64");
    assert_eq!(revision(&broken).unwrap().status, "deployed");
}
