//! Counters and histograms of the broker, one registry for every listener (ARCHITECTURE D11).
//!
//! Labels come from closed sets only (calls, reasons), never from names that clients choose, so the number of series is bounded.
//! What the hot path touches is resolved once: one atomic addition per batch and no look-up.

use std::time::Duration;

use hulse_proto::error::{Fault, Reason};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::balance::BalanceMetrics;
use crate::subscription_metrics::SubscriptionMetrics;

/// Upper bounds, in seconds: from an in-memory acknowledgement to the delivery time-out.
const LATENCY_BUCKETS: [f64; 16] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 5.0, 30.0,
];

/// One call of one service, e.g. `Admin.CreateTopic`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ApiLabel {
    api: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    api: &'static str,
    /// `OK` or the name of a [`Reason`].
    code: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProtocolLabel {
    protocol: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// Metrics of one broker. Cloning shares the values.
#[derive(Clone)]
pub struct Metrics {
    requests: Family<OutcomeLabels, Counter>,
    request_latency: Family<ApiLabel, Histogram, fn() -> Histogram>,
    faults: Family<ReasonLabel, Counter>,
    batches_in: Counter,
    records_in: Counter,
    bytes_in: Counter,
    batches_out: Counter,
    records_out: Counter,
    bytes_out: Counter,
    publish_latency: Histogram,
    sessions: Gauge,
    lanes: Gauge,
    partitions: Gauge,
    ingress_bytes: Gauge,
    panics: Counter,
    connections: Family<ProtocolLabel, Gauge>,
    refused: Family<ProtocolLabel, Counter>,
    subscriptions: SubscriptionMetrics,
    balance: BalanceMetrics,
}

fn latency_histogram() -> Histogram {
    Histogram::new(LATENCY_BUCKETS)
}

impl Metrics {
    /// Makes the metrics and registers them; names begin with `hulse_`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            request_latency: Family::new_with_constructor(latency_histogram),
            faults: Family::default(),
            batches_in: Counter::default(),
            records_in: Counter::default(),
            bytes_in: Counter::default(),
            batches_out: Counter::default(),
            records_out: Counter::default(),
            bytes_out: Counter::default(),
            publish_latency: latency_histogram(),
            sessions: Gauge::default(),
            lanes: Gauge::default(),
            partitions: Gauge::default(),
            ingress_bytes: Gauge::default(),
            panics: Counter::default(),
            connections: Family::default(),
            refused: Family::default(),
            subscriptions: SubscriptionMetrics::default(),
            balance: BalanceMetrics::default(),
        };
        metrics.subscriptions.register(registry);
        metrics.balance.register(registry);
        metrics.register_requests(registry);
        metrics.register_traffic(registry);
        metrics.register_connections(registry);
        metrics
    }

    fn register_requests(&self, registry: &mut Registry) {
        registry.register(
            "hulse_requests",
            "Requests by call and outcome",
            self.requests.clone(),
        );
        registry.register(
            "hulse_request_latency_seconds",
            "Time from a unary request to its answer",
            self.request_latency.clone(),
        );
        registry.register(
            "hulse_faults",
            "Faults answered on any stream or call, by reason",
            self.faults.clone(),
        );
        registry.register(
            "hulse_panics",
            "Panics that ended a session or a read",
            self.panics.clone(),
        );
        registry.register(
            "hulse_produce_sessions",
            "Open produce sessions",
            self.sessions.clone(),
        );
        registry.register(
            "hulse_produce_lanes",
            "Lanes of all produce sessions",
            self.lanes.clone(),
        );
        registry.register(
            "hulse_partitions_open",
            "Partitions open on this broker",
            self.partitions.clone(),
        );
    }

    fn register_connections(&self, registry: &mut Registry) {
        registry.register(
            "hulse_connections",
            "Open connections, of wires that count them",
            self.connections.clone(),
        );
        registry.register(
            "hulse_connections_refused",
            "Connections ended because the peer broke the protocol or did not go on",
            self.refused.clone(),
        );
    }

    fn register_traffic(&self, registry: &mut Registry) {
        registry.register(
            "hulse_batches_in",
            "Record batches stored",
            self.batches_in.clone(),
        );
        registry.register(
            "hulse_records_in",
            "Records stored",
            self.records_in.clone(),
        );
        registry.register(
            "hulse_bytes_in",
            "Bytes of stored batches",
            self.bytes_in.clone(),
        );
        registry.register(
            "hulse_batches_out",
            "Record batches sent to readers",
            self.batches_out.clone(),
        );
        registry.register(
            "hulse_records_out",
            "Records sent to readers",
            self.records_out.clone(),
        );
        registry.register(
            "hulse_bytes_out",
            "Bytes of batches sent to readers",
            self.bytes_out.clone(),
        );
        registry.register(
            "hulse_publish_latency_seconds",
            "Time from a received batch to its acknowledgement",
            self.publish_latency.clone(),
        );
        registry.register(
            "hulse_ingress_in_flight_bytes",
            "Bytes of received batches that are not answered yet",
            self.ingress_bytes.clone(),
        );
    }

    /// Counts one answered request of `api`.
    pub fn request(&self, api: &'static str, outcome: Result<(), &Fault>) {
        let code = match outcome {
            Ok(()) => "OK",
            Err(fault) => {
                self.fault(fault.reason);
                fault.reason.as_str()
            }
        };
        self.request_ended(api, code);
    }

    /// As [`Metrics::request`], of a wire that has codes of its own and counts faults where it tells them.
    pub fn request_ended(&self, api: &'static str, code: &'static str) {
        self.requests
            .get_or_create(&OutcomeLabels { api, code })
            .inc();
    }

    /// How many requests of `api` ended with this code.
    pub fn requests_ended(&self, api: &'static str, code: &'static str) -> u64 {
        let labels = OutcomeLabels { api, code };
        self.requests.get_or_create(&labels).get()
    }

    /// Records how long a unary request of `api` took.
    pub fn request_took(&self, api: &'static str, took: Duration) {
        self.request_latency
            .get_or_create(&ApiLabel { api })
            .observe(took.as_secs_f64());
    }

    /// Counts a fault that was answered.
    pub fn fault(&self, reason: Reason) {
        self.faults
            .get_or_create(&ReasonLabel {
                reason: reason.as_str(),
            })
            .inc();
    }

    /// Counts one stored batch and the time since it was received.
    pub fn stored(&self, records: u64, bytes: u64, took: Duration) {
        self.batches_in.inc();
        self.records_in.inc_by(records);
        self.bytes_in.inc_by(bytes);
        self.publish_latency.observe(took.as_secs_f64());
    }

    /// Counts batches that were handed to a reader's connection.
    pub fn sent(&self, batches: u64, records: u64, bytes: u64) {
        self.batches_out.inc_by(batches);
        self.records_out.inc_by(records);
        self.bytes_out.inc_by(bytes);
    }

    /// A panic ended one session or read.
    pub fn panicked(&self) {
        self.panics.inc();
    }

    /// Open connections of a wire; kept by its listener.
    pub fn connections(&self, protocol: &'static str) -> Gauge {
        self.connections
            .get_or_create(&ProtocolLabel { protocol })
            .clone()
    }

    /// A connection of a wire was ended because its peer broke the protocol or did not go on.
    pub fn connection_refused(&self, protocol: &'static str) {
        self.refused
            .get_or_create(&ProtocolLabel { protocol })
            .inc();
    }

    /// What is counted of subscriptions.
    pub(crate) fn subscriptions(&self) -> &SubscriptionMetrics {
        &self.subscriptions
    }

    /// What is counted of partitions that go from broker to broker.
    pub(crate) fn balance(&self) -> &BalanceMetrics {
        &self.balance
    }

    /// Open produce sessions.
    pub fn sessions(&self) -> &Gauge {
        &self.sessions
    }

    /// Lanes of all sessions.
    pub fn lanes(&self) -> &Gauge {
        &self.lanes
    }

    /// Partitions open on this broker; kept by their owner.
    pub fn partitions(&self) -> &Gauge {
        &self.partitions
    }

    /// Bytes of batches between socket and answer.
    pub fn ingress_bytes(&self) -> &Gauge {
        &self.ingress_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_names_calls_and_reasons() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        metrics.request("Admin.CreateTopic", Ok(()));
        let fault = Fault::new(Reason::TopicExists, "exists");
        metrics.request("Admin.CreateTopic", Err(&fault));
        metrics.stored(3, 100, Duration::from_micros(70));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "hulse_requests_total{api=\"Admin.CreateTopic\",code=\"OK\"} 1",
            "hulse_requests_total{api=\"Admin.CreateTopic\",code=\"TOPIC_EXISTS\"} 1",
            "hulse_faults_total{reason=\"TOPIC_EXISTS\"} 1",
            "hulse_records_in_total 3",
            "hulse_publish_latency_seconds_bucket{le=\"0.0001\"} 1",
        ] {
            assert!(text.contains(line), "{line} is missing in:\n{text}");
        }
    }
}
