//! `kill -9` at any instant: what was acknowledged is there, and nothing is there by half.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, io, thread};

use objects::kinds::{AccessToken, AccessTokenSpec, User, UserSpec};
use objects::{Expected, Id, Objects, Within};
use stallproof::{Deadline, Tasks};

/// Where the child writes; set in the child alone.
const CHILD: &str = "FAIRLEAD_TEST_KILL_DIR";
/// How often to kill, if not 200 times.
const KILLS: &str = "FAIRLEAD_TEST_KILLS";
const WRITERS: u32 = 6;
/// The tokens of a user, which go with it.
const TOKENS: u32 = 3;

#[test]
fn every_acknowledged_write_survives_kill_9() {
    if let Some(dir) = env::var_os(CHILD) {
        return child(Path::new(&dir));
    }
    let kills = env::var(KILLS).map_or(200, |kills| kills.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut acknowledged = BTreeMap::new();
    let mut total = 0;
    for kill in 0..kills {
        total += run_and_kill(dir.path(), &mut acknowledged);
        runtime.block_on(check(dir.path(), &acknowledged, kill));
    }
    assert!(total > kills, "{total} writes in {kills} lives: the child hardly got to write");
}

/// Counts up without end: what a writer says is acknowledged, and only then.
fn child(dir: &Path) {
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

fn acknowledge(what: &str, number: u64) {
    // One write: a line that is cut off was not said.
    let line = format!("acknowledged {what} {number}\n");
    io::stdout().write_all(line.as_bytes()).unwrap();
}

async fn count(objects: Objects, writer: u32) {
    let name = format!("counter-{writer}");
    let found = objects.get::<User>(&Id::cluster(&name), soon()).await.unwrap();
    let mut number = found.map_or(0, |user| number(&user));
    loop {
        number += 1;
        objects.apply(&user(&name, number), Expected::Any, soon()).await.unwrap();
        acknowledge(&name, number);
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

/// Lets a child live for a random while; answers how many writes it said were acknowledged.
fn run_and_kill(dir: &Path, acknowledged: &mut BTreeMap<String, u64>) -> u64 {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "every_acknowledged_write_survives_kill_9", "--nocapture"])
        .env(CHILD, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let life = Duration::from_micros(fastrand::u64(..80_000));
    let killer = thread::spawn(move || {
        thread::sleep(life);
        child.kill().unwrap();
        child.wait().unwrap();
    });
    let mut count = 0;
    let mut line = String::new();
    while said.read_line(&mut line).unwrap() > 0 {
        if let Some((what, number)) = line
            .strip_suffix('\n')
            .and_then(|line| line.strip_prefix("acknowledged "))
            .and_then(|line| line.split_once(' '))
        {
            acknowledged.insert(what.to_owned(), number.parse().unwrap());
            count += 1;
        }
        line.clear();
    }
    killer.join().unwrap();
    count
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
