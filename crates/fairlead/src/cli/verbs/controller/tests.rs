use clap::{Args as _, Command, FromArgMatches};

use super::*;
use crate::config::Sources;

fn resolve(args: &[&str]) -> Result<Resolved, String> {
    let command = ConfigFlags::augment_args(Command::new("controller").no_binary_name(true));
    let matches = command.try_get_matches_from(args).unwrap();
    let flags = ConfigFlags::from_arg_matches(&matches).unwrap();
    // The machine's own file plays no part.
    let env = [("FAIRLEAD_CONFIG".to_owned(), "/dev/null".to_owned())].into();
    let resolved = Sources { flags: &flags, env }.resolve_with(imply);
    resolved.map_err(|problems| problems.iter().map(|p| format!("{p}\n")).collect())
}

#[test]
fn what_a_controller_implies_is_there_before_the_whole_is_checked() {
    let config = resolve(&["--admission-service=fairlead/webhook"]).unwrap().config;
    assert_eq!(config.store, Store::Kubernetes);
    assert!(config.fleet.kubeconfig.is_empty());
    let told = resolve(&["--admission-service=fairlead/webhook", "--store=embedded"]).unwrap_err();
    assert!(told.contains("needs store=kubernetes"), "{told}");
}

#[test]
fn the_command_line_of_the_deployment_is_valid() {
    let config = resolve(&[
        "--data=/var/lib/fairlead",
        "--fleet-namespace=tools",
        "--fleet-secrets-namespace=tools",
        "--api-listen=*:7680",
        "--api-tls=auto",
        "--agents-listen=*:7681",
        "--admin-listen=*:7682",
        "--admin-tls=auto",
        "--admission-listen=*:7683",
        "--admission-service=tools/fairlead-webhook",
        "--shutdown-delay=5s",
    ]);
    let config = config.unwrap().config;
    assert_eq!(config.api.listen.to_string(), "*:7680");
    assert_eq!(config.fleet.secrets_namespace.as_deref(), Some("tools"));
    // A tenant's Secret is no cluster of the fleet, unless somebody says so.
    let within = |args: &[&str]| resolve(args).unwrap().config.fleet.secrets_namespace;
    assert_eq!(within(&["--data=/d"]).as_deref(), Some("fairlead"));
    assert_eq!(within(&["--data=/d", "--fleet-namespace=tools"]).as_deref(), Some("tools"));
    assert_eq!(within(&["--data=/d", "--fleet-secrets-namespace=all"]), None);
}
