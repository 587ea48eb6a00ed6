//! Orders of a small shop: the same for the same seed, on every machine.

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::format::date_and_time;

/// Customers there are; the lower the number, the more they buy.
const CUSTOMERS: u32 = 1_000;
/// Longest time between two orders.
const GAP_MS_MAX: i64 = 400;
/// Most pieces in an order.
const QUANTITY_MAX: u32 = 5;

/// Product, category, price in cents.
const PRODUCTS: [(&str, &str, u64); 12] = [
    ("kettle", "kitchen", 3_495),
    ("teapot", "kitchen", 2_250),
    ("frying-pan", "kitchen", 4_180),
    ("desk-lamp", "office", 5_900),
    ("notebook", "office", 475),
    ("fountain-pen", "office", 2_890),
    ("rain-jacket", "clothes", 8_995),
    ("wool-socks", "clothes", 1_240),
    ("cap", "clothes", 1_790),
    ("tent", "outdoors", 18_900),
    ("water-bottle", "outdoors", 1_650),
    ("head-torch", "outdoors", 3_325),
];
const COUNTRIES: [&str; 8] = ["DE", "FR", "GB", "IT", "NL", "PL", "SE", "US"];

/// One order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Order {
    /// `customer-17`: the key of its record.
    pub(super) customer: String,
    /// ms since 1970: the time of its record.
    pub(super) event_time_ms: i64,
    /// The value of its record, JSON.
    pub(super) json: String,
}

/// Orders without an end.
#[derive(Debug)]
pub(super) struct Orders {
    rng: ChaCha8Rng,
    number: u64,
    time_ms: i64,
}

impl Orders {
    /// The orders of a seed, the first at this time.
    pub(super) fn new(seed: u64, start_ms: i64) -> Self {
        Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            number: 0,
            time_ms: start_ms,
        }
    }
}

impl Iterator for Orders {
    type Item = Order;

    fn next(&mut self) -> Option<Order> {
        let rng = &mut self.rng;
        // The smaller of two draws: few customers buy much.
        let customer = rng
            .random_range(0..CUSTOMERS)
            .min(rng.random_range(0..CUSTOMERS));
        let (product, category, list) = PRODUCTS[rng.random_range(0..PRODUCTS.len())];
        let quantity = rng.random_range(1..=QUANTITY_MAX);
        // One order in five is at a tenth off.
        let price = if rng.random_range(0..5) == 0 {
            list * 9 / 10
        } else {
            list
        };
        let country = COUNTRIES[customer as usize % COUNTRIES.len()];
        let event_time_ms = self.time_ms;
        self.time_ms += rng.random_range(0..=GAP_MS_MAX);
        let customer = format!("customer-{customer}");
        let json = format!(
            "{{\"order_id\":{},\"customer\":\"{customer}\",\"product\":\"{product}\",\"category\":\"{category}\",\
             \"price\":{}.{:02},\"quantity\":{quantity},\"country\":\"{country}\",\"event_time\":\"{}\"}}",
            self.number,
            price / 100,
            price % 100,
            date_and_time(event_time_ms)
        );
        self.number += 1;
        Some(Order {
            customer,
            event_time_ms,
            json,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_of_a_seed_are_always_the_same() {
        let first = |seed| Orders::new(seed, 0).take(100).collect::<Vec<_>>();
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
        let one = &first(1)[0];
        assert_eq!(
            one.json,
            "{\"order_id\":0,\"customer\":\"customer-402\",\"product\":\"head-torch\",\"category\":\"outdoors\",\
             \"price\":33.25,\"quantity\":1,\"country\":\"GB\",\"event_time\":\"1970-01-01T00:00:00.000Z\"}"
        );
    }

    #[test]
    fn orders_are_json_with_rising_numbers_and_times() {
        let mut last = -1;
        for (number, order) in Orders::new(7, 1_000).take(1_000).enumerate() {
            let value: serde_json::Value = serde_json::from_str(&order.json).unwrap();
            assert_eq!(value["order_id"], number);
            assert_eq!(value["customer"], order.customer.as_str());
            assert!(value["price"].as_f64().unwrap() > 0.0);
            assert!(order.event_time_ms >= last.max(1_000));
            last = order.event_time_ms;
        }
    }
}
