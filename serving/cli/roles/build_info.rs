//! What a machine that watches this process is told of it: `hulse_build_info`.

use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::config::Config;

/// Registers the version, and how what is acknowledged is synced.
pub(super) fn register(registry: &mut Registry, config: &Config) {
    let facts = vec![
        ("version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("sync".to_owned(), config.bookie.sync.to_string()),
    ];
    registry.register("hulse_build", "This process", Info::new(facts));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_name_version_and_sync_mode() {
        let mut registry = Registry::default();
        register(&mut registry, &Config::default());
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let version = env!("CARGO_PKG_VERSION");
        let line = format!("hulse_build_info{{version=\"{version}\",sync=\"always\"}} 1");
        assert!(text.contains(&line), "{text}");
    }
}
