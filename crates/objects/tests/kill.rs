//! `kill -9` at any instant: what was acknowledged is there, and nothing is there by half.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use objects::kinds::{AccessToken, AccessTokenSpec, User, UserSpec};
use objects::{Expected, Id, Objects, Within};
use stallproof::{Deadline, Tasks};
use testkit::{acknowledge, killed};

const WRITERS: u32 = 6;
/// The tokens of a user, which go with it.
const TOKENS: u32 = 3;

#[test]
fn every_acknowledged_write_survives_kill_9() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut acknowledged = BTreeMap::new();
    killed("every_acknowledged_write_survives_kill_9", write, |dir, killed| {
        for line in &killed.acknowledged {
            let (name, number) = line.split_once(' ').unwrap();
            acknowledged.insert(name.to_owned(), number.parse().unwrap());
        }
        runtime.block_on(check(dir, &acknowledged, killed.life));
    });
}

/// Counts up without end: what a writer says is acknowledged, and only then.
fn write(dir: &Path, _: u64) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let tasks = Tasks::new("child");
        let objects = Objects::embedded(dir, &tasks).unwrap();
        let mut writers: Vec<_> = (0..WRITERS)
            .map(|writer| tasks.spawn(format!("counter {writer}"), count(objects.clone(), writer)))
            .collect();
        writers.push(tasks.spawn("families", families(objects.clone())));
        for writer in writers {
            writer.await.unwrap();
        }
    });
}

async fn count(objects: Objects, writer: u32) {
    let name = format!("counter-{writer}");
    let found = objects.get::<User>(&Id::cluster(&name), soon()).await.unwrap();
    let mut number = found.map_or(0, |user| number(&user));
    loop {
        number += 1;
        objects.apply(&user(&name, number), Expected::Any, soon()).await.unwrap();
        acknowledge(format_args!("{name} {number}"));
    }
}

/// Makes users with tokens, and deletes them: all go at once, or none.
async fn families(objects: Objects) {
    for number in 1.. {
        let name = "family";
        let made = match objects.create(&user(name, number), soon()).await {
            Ok(made) => made,
            Err(objects::Error::Exists { .. }) => {
                objects.delete::<User>(&Id::cluster(name), Expected::Any, soon()).await.unwrap();
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        for i in 0..TOKENS {
            let token = token(&format!("{name}-{i}")).owned_by(&made);
            objects.create(&token, soon()).await.unwrap();
        }
        objects.delete::<User>(&Id::cluster(name), Expected::Any, soon()).await.unwrap();
    }
}

async fn check(dir: &Path, acknowledged: &BTreeMap<String, u64>, kill: u64) {
    let tasks = Tasks::new("parent");
    let objects = Objects::embedded(dir, &tasks).unwrap_or_else(|error| {
        panic!("after {kill} kills: {error}: {:?}", std::error::Error::source(&error));
    });
    for (name, last) in acknowledged {
        let found = objects.get::<User>(&Id::cluster(name), soon()).await.unwrap();
        let found = found.map(|user| number(&user));
        assert!(
            found >= Some(*last),
            "after {kill} kills: {name}: {last} was acknowledged, {found:?} is there"
        );
    }
    let family = objects.get::<User>(&Id::cluster("family"), soon()).await.unwrap();
    let tokens = objects.list::<AccessToken>(&Within::default(), soon()).await.unwrap().items;
    let of_family = |token: &AccessToken| family.as_ref().is_some_and(|it| token.is_owned_by(it));
    assert!(tokens.iter().all(of_family), "after {kill} kills: a user went without its tokens");
    let mut versions: Vec<u64> = Vec::new();
    let users = objects.list::<User>(&Within::default(), soon()).await.unwrap();
    versions.extend(users.items.iter().map(version));
    versions.extend(tokens.iter().map(version));
    let newest: u64 = users.version.0.parse().unwrap();
    assert!(versions.iter().all(|version| *version <= newest));
    versions.sort_unstable();
    assert!(versions.windows(2).all(|pair| pair[0] != pair[1]), "a version was used twice");
    assert_eq!(tasks.shutdown(Duration::from_secs(30)).await, []);
}

fn version(object: &impl objects::Kind) -> u64 {
    object.meta().resource_version.as_ref().unwrap().parse().unwrap()
}

fn user(name: &str, number: u64) -> User {
    let roles = vec![format!("n{number}")];
    User::new(name, UserSpec { password_hash: None, roles, disabled: false })
}

fn number(user: &User) -> u64 {
    user.spec.roles[0][1..].parse().unwrap()
}

fn token(name: &str) -> AccessToken {
    let (user, hash) = ("family".to_owned(), "0".repeat(64));
    AccessToken::new(name, AccessTokenSpec { user, hash, expires: None, description: None })
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}
