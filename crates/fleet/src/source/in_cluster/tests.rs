use super::*;

#[tokio::test]
async fn a_mounted_service_account_is_a_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let config = InCluster {
        name: "here".to_owned(),
        host: "fd00::1".to_owned(),
        port: 6443,
        mounted: dir.path().to_owned(),
    };
    assert!(access(&config).await.unwrap_err().contains("ca.crt cannot be read"));
    let pem = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";
    std::fs::write(dir.path().join("ca.crt"), pem).unwrap();
    std::fs::write(dir.path().join("namespace"), "ours\n").unwrap();
    let access = access(&config).await.unwrap();
    assert_eq!(access.endpoint.address(), "https://[fd00::1]:6443");
    assert_eq!(access.endpoint.authorities, Some(vec![vec![1, 2, 3]]));
    assert_eq!(access.auth.bearer, Bearer::TokenFile(dir.path().join("token")));
    assert_eq!(access.namespace, "ours");
}
