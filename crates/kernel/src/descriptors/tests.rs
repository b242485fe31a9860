use super::*;

#[test]
fn the_limit_is_raised_to_the_hard_one() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let low = Rlimit { current: Some(maximum.unwrap_or(1024).min(1024)), maximum };
    setrlimit(Resource::Nofile, low).unwrap();
    let most = maximum.map_or(usize::MAX, |most| usize::try_from(most).unwrap());
    assert_eq!(raise_limit(), most);
    assert_eq!(limit(), most);
}
