//! Metrics in the text form of Prometheus, as far as the doctor reads them.

/// One line.
#[derive(Debug, Clone, PartialEq)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

/// All lines.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Metrics(Vec<Sample>);

impl Metrics {
    /// Reads the text; a line that cannot be understood is passed over.
    pub(super) fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Self(lines.filter_map(sample).collect())
    }

    /// The value of a metric without labels, or the sum over its labels.
    pub(super) fn value(&self, name: &str) -> Option<f64> {
        let mut found = self
            .0
            .iter()
            .filter(|sample| sample.name == name)
            .peekable();
        found.peek()?;
        Some(found.map(|sample| sample.value).sum())
    }

    /// A label of the first sample of this name.
    pub(super) fn label(&self, name: &str, label: &str) -> Option<&str> {
        let sample = self.0.iter().find(|sample| sample.name == name)?;
        let found = sample.labels.iter().find(|(found, _)| found == label);
        found.map(|(_, value)| value.as_str())
    }

    /// The values of a metric by one of its labels.
    pub(super) fn by_label(&self, name: &str, label: &str) -> Vec<(&str, f64)> {
        let found = self.0.iter().filter(|sample| sample.name == name);
        let found = found.filter_map(|sample| {
            let (_, value) = sample.labels.iter().find(|(found, _)| found == label)?;
            Some((value.as_str(), sample.value))
        });
        found.collect()
    }

    /// The bound below which this share of a histogram's observations lies, if it has at least `least` of them.
    pub(super) fn quantile(&self, name: &str, share: f64, least: f64) -> Option<f64> {
        let count = self.value(&format!("{name}_count"))?;
        if count < least {
            return None;
        }
        let bucket = format!("{name}_bucket");
        let mut bounds: Vec<(f64, f64)> = self
            .0
            .iter()
            .filter(|sample| sample.name == bucket)
            .filter_map(|sample| {
                let (_, bound) = sample.labels.iter().find(|(label, _)| label == "le")?;
                let bound = if bound == "+Inf" {
                    f64::INFINITY
                } else {
                    bound.parse().ok()?
                };
                Some((bound, sample.value))
            })
            .collect();
        bounds.sort_by(|a, b| a.0.total_cmp(&b.0));
        let wanted = count * share;
        let found = bounds.into_iter().find(|(_, below)| *below >= wanted);
        found.map(|(bound, _)| bound)
    }
}

/// `name{label="value",...} 12.5`
fn sample(line: &str) -> Option<Sample> {
    let (head, rest) = match line.split_once('{') {
        Some((name, rest)) => {
            let (labels, value) = rest.rsplit_once('}')?;
            ((name, labels), value)
        }
        None => {
            let (name, value) = line.split_once(' ')?;
            ((name, ""), value)
        }
    };
    let value = rest.split_whitespace().next()?.parse().ok()?;
    let (name, labels) = head;
    let labels = labels
        .split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(label, value)| (label.to_owned(), value.trim_matches('"').to_owned()))
        .collect();
    Some(Sample {
        name: name.trim().to_owned(),
        labels,
        value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# HELP hulse_bookie_level how full
hulse_bookie_level 2
hulse_build_info{version=\"0.1.0\",sync=\"off\"} 1
hulse_faults_total{reason=\"A\"} 3
hulse_faults_total{reason=\"B\"} 4
sync_count 100
sync_bucket{le=\"0.001\"} 10
sync_bucket{le=\"0.1\"} 98
sync_bucket{le=\"0.2\"} 99
sync_bucket{le=\"+Inf\"} 100
";

    #[test]
    fn values_labels_and_quantiles_are_read() {
        let metrics = Metrics::parse(TEXT);
        assert_eq!(metrics.value("hulse_bookie_level"), Some(2.0));
        assert_eq!(metrics.value("hulse_faults_total"), Some(7.0));
        assert_eq!(metrics.value("absent"), None);
        assert_eq!(metrics.label("hulse_build_info", "sync"), Some("off"));
        assert_eq!(metrics.quantile("sync", 0.5, 20.0), Some(0.1));
        assert_eq!(metrics.quantile("sync", 0.99, 20.0), Some(0.2));
        assert_eq!(metrics.quantile("sync", 0.99, 200.0), None);
    }
}
