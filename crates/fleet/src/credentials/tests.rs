use std::os::unix::fs::PermissionsExt;

use stallproof::{Ledger, Tasks};

use super::*;
use crate::config::Timing;
use crate::local_address::AddressGuard;
use exec::Version;

fn access(bearer: Bearer) -> Arc<Access> {
    let endpoint = Endpoint {
        server: "https://127.0.0.1:1".parse().unwrap(),
        authorities: None,
        insecure: false,
        tls_server_name: None,
        proxy: None,
        guard: AddressGuard::default(),
    };
    let auth = Auth { bearer, ..Auth::default() };
    Arc::new(Access { endpoint, auth, namespace: "default".to_owned(), impersonation: None })
}

fn context() -> Arc<FleetContext> {
    Arc::new(FleetContext::new(Timing::default(), Ledger::default(), Tasks::new("test")))
}

async fn fetched(bearer: Bearer) -> Result<Fetched, Failure> {
    let deadline = Deadline::after(Duration::from_secs(30));
    fetch("c", &access(bearer), &context(), deadline).await
}

#[tokio::test]
async fn each_kind_of_credential_becomes_its_header() {
    let token = fetched(Bearer::Token(Redacted("t".to_owned()))).await.unwrap();
    let header = token.header.unwrap();
    assert_eq!(header, "Bearer t");
    assert!(header.is_sensitive());
    let basic = Bearer::Basic { user: "a".to_owned(), password: Redacted("b".to_owned()) };
    assert_eq!(fetched(basic).await.unwrap().header.unwrap(), "Basic YTpi");
    assert_eq!(fetched(Bearer::None).await.unwrap().header, None);
    let bad = fetched(Bearer::Token(Redacted("s3cret\nx".to_owned()))).await.unwrap_err();
    assert!(!bad.why.contains("s3cret"), "{}", bad.why);

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    let missing = fetched(Bearer::TokenFile(path.clone())).await.unwrap_err();
    assert!(missing.why.contains("cannot be read: No such file"), "{}", missing.why);
    std::fs::write(&path, " \n").unwrap();
    assert!(fetched(Bearer::TokenFile(path.clone())).await.unwrap_err().why.ends_with("is empty"));
    std::fs::write(&path, "t\n").unwrap();
    let file = fetched(Bearer::TokenFile(path)).await.unwrap();
    assert_eq!(file.header.unwrap(), "Bearer t");
    let again = file.renew_in.unwrap();
    assert!(again >= REREAD.mul_f64(0.75) && again <= REREAD);
}

/// A plugin that gives a new token with every run, each valid for so many seconds.
fn counting(dir: &std::path::Path, seconds: u32) -> Bearer {
    let path = dir.join("plugin");
    let script = format!(
        "#!/bin/sh\ncd {}; echo >> runs; n=$(wc -l < runs)\n\
         echo '{{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\
         \"status\":{{\"token\":\"t'$n'\",\"expirationTimestamp\":\"'$(date -u -d '+{seconds} \
         seconds' +%Y-%m-%dT%H:%M:%SZ)'\"}}}}'\n",
        dir.display()
    );
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    Bearer::Exec(Exec {
        version: Version::V1,
        command: path.to_str().unwrap().to_owned(),
        args: Vec::new(),
        env: Vec::new(),
        install_hint: None,
        provide_cluster_info: false,
        cluster_config: None,
    })
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(Deadline::after(Duration::from_secs(60)).bound(wait).await.is_ok(), "not {what}");
}

#[tokio::test]
async fn a_token_is_renewed_before_it_expires_and_when_it_was_refused_until_nobody_holds_it() {
    let dir = tempfile::tempdir().unwrap();
    let context = context();
    let trigger = Arc::new(ProbeTrigger::default());
    let made = async |seconds| {
        let access = access(counting(dir.path(), seconds));
        let deadline = Deadline::after(Duration::from_secs(30));
        let fetched = fetch("c", &access, &context, deadline).await.unwrap();
        let renew_in = fetched.renew_in;
        let credentials = Credentials::new(access, fetched, &context);
        credentials.keep_fresh(&"c".into(), renew_in, &context, &trigger);
        credentials
    };
    let sent =
        |credentials: &Credentials| credentials.header().unwrap().to_str().unwrap().to_owned();

    let short = made(4).await;
    assert_eq!(sent(&short), "Bearer t1");
    until("renewed in time", || sent(&short) == "Bearer t2").await;

    let long = made(3600).await;
    let first = sent(&long);
    long.were_refused();
    until("renewed when refused", || sent(&long) != first).await;

    let renewing = || context.tasks.list().iter().filter(|t| t.name == "credentials of c").count();
    assert_eq!((renewing(), context.metrics.credentials.get()), (2, 2));
    drop((short, long));
    until("stopped", || renewing() == 0).await;
    assert_eq!(context.metrics.credentials.get(), 0);
}
