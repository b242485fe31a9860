use objects::Expected;
use objects::kinds::{IdentityProvider, RoleMapping};
use serde_json::{Value, json};

use super::*;
use crate::access::tests::{Fixture, soon};
use crate::identity::AuthMethod;

/// A replica that knows the provider `corp`, whose `devs` are viewers.
async fn replica() -> Fixture {
    let fixture = Fixture::new().await;
    let spec = json!({ "issuer": "https://id.example", "clientId": "fairlead" });
    let corp = IdentityProvider::new("corp", serde_json::from_value(spec).unwrap());
    fixture.objects.apply(&corp, Expected::Any, soon()).await.unwrap();
    let spec = json!({ "provider": "corp", "values": ["devs"], "roles": ["viewer"] });
    let devs = RoleMapping::new("devs", serde_json::from_value(spec).unwrap());
    fixture.objects.apply(&devs, Expected::Any, soon()).await.unwrap();
    let told = |all: &crate::directory::Directory| {
        all.mapping("devs").is_some() && all.provider("corp").is_some()
    };
    fixture.until(|| fixture.access.0.directory.read(told)).await;
    fixture
}

fn ann(fixture: &Fixture, groups: &[&str]) -> Federated {
    let Value::Object(claims) = json!({ "groups": groups, "email": "ann@shop.example" }) else {
        unreachable!()
    };
    let provider = fixture.access.0.directory.read(|all| all.provider("corp").cloned()).unwrap();
    Federated {
        user: "corp:ann@shop.example".into(),
        provider: "corp".into(),
        provider_stamp: provider.stamp,
        subject: "1".into(),
        claims: UserClaims::of(&[&claims]),
    }
}

#[tokio::test]
async fn a_user_of_a_provider_is_known_to_the_replica_that_is_asked() {
    let (here, there) = (replica().await, replica().await);
    let ann = ann(&here, &["devs"]);
    let who = Identity { user: Arc::clone(&ann.user), via: AuthMethod::Local };
    assert_eq!(here.access.name_for_replica(&who), *ann.user, "not logged in");
    here.access.0.directory.update(|directory| directory.federate(ann.clone()));
    let name = here.access.name_for_replica(&who);
    assert!(name.starts_with("corp:ann@shop.example#"), "{name}");

    assert!(!there.access.is_still(&who));
    let named = there.access.named_by_replica(&name).unwrap();
    assert_eq!(named, ann.user);
    assert!(there.access.is_still(&who));
    assert_eq!(there.access.roles_and_groups(&who).0, ["viewer"]);
    assert!(there.access.0.visitors.has(&ann.user));
    // Of a user of the store the name is enough.
    assert_eq!(there.access.named_by_replica("local").as_deref(), Some("local"));
    for odd in ["corp:ann#", "corp:ann#e30", "local#e30", "corp:ann#💥"] {
        assert!(there.access.named_by_replica(odd).is_none(), "{odd}");
    }
    let (_, introduction) = name.split_once('#').unwrap();
    let taken = there.access.named_by_replica(&format!("local#{introduction}"));
    assert!(taken.is_none(), "a user of the store cannot be introduced");
}

#[tokio::test]
async fn roles_follow_groups_mappings_and_the_provider() {
    let fixture = replica().await;
    let who = Identity { user: "corp:ann@shop.example".into(), via: AuthMethod::Local };
    let federate = |groups: &[&str]| {
        let ann = ann(&fixture, groups);
        fixture.access.0.directory.update(|directory| directory.federate(ann));
    };
    let roles = || fixture.access.roles_and_groups(&who);
    federate(&["devs", "others"]);
    assert_eq!(roles().0, ["viewer"]);
    assert_eq!(roles().1, ["corp:devs", "corp:others"]);
    federate(&["others"]);
    assert_eq!(roles().0, [""; 0]);
    federate(&["devs"]);
    let spec = json!({ "provider": "corp", "claim": "email", "values": ["ann@shop.example"], "roles": ["operator", "none"] });
    let own = RoleMapping::new("own", serde_json::from_value(spec).unwrap());
    fixture.objects.apply(&own, Expected::Any, soon()).await.unwrap();
    fixture.until(|| roles().0 == ["none", "operator", "viewer"]).await;
    // Somebody else of the same name is another user.
    let stamp = fixture.access.0.directory.read(|all| all.account(&who.user).unwrap().stamp);
    let other = Federated { subject: "2".into(), ..ann(&fixture, &["devs"]) };
    fixture.access.0.directory.update(|directory| directory.federate(other));
    assert!(!fixture.access.holds(&who.user, stamp));
    let id = objects::Id::cluster("corp");
    fixture.objects.delete::<IdentityProvider>(&id, Expected::Any, soon()).await.unwrap();
    fixture.until(|| !fixture.access.is_still(&who)).await;
}
