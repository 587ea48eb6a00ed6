//! FindCoordinator: the broker that coordinates a group.

use std::sync::Arc;

use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{FindCoordinatorRequest, FindCoordinatorResponse};
use kafka_protocol::protocol::StrBytes;

use crate::brokers::{Node, Nodes};
use crate::error_code::{self, Code};
use crate::link::Link;
use crate::requests::{Outcome, once};
use crate::wire::{Broken, Request, text};

/// First version that asks for several coordinators at once.
const COORDINATORS_FROM: i16 = 4;
/// Key type of groups.
const GROUPS: i8 = 0;
/// Key type of transactional ids.
const TRANSACTIONS: i8 = 1;

/// Answers it. Share groups (key type 2, from version 6 on) are not served: a client that asks for one hears so at once. Who asks for the coordinator of a transactional id is told this broker, which refuses such ids: clients ask for ever on
/// "there is none now", and hand every other error to an application that did nothing wrong.
pub(crate) async fn coordinator(link: &Arc<Link>, mut request: Request) -> Result<Outcome, Broken> {
    let message: FindCoordinatorRequest = request.decode()?;
    let kind = message.key_type;
    let nodes = link.nodes().await;
    let mut response = FindCoordinatorResponse::default().with_error_message(None);
    let code = if request.version < COORDINATORS_FROM {
        let found = find(link, &nodes, kind, &message.key).await;
        let (code, node) = split(found);
        response = response
            .with_error_code(code)
            .with_node_id(node.id.into())
            .with_host(text(node.host))
            .with_port(i32::from(node.port));
        code
    } else {
        for key in once(message.coordinator_keys, Clone::clone) {
            let (code, node) = split(find(link, &nodes, kind, &key).await);
            let row = Coordinator::default()
                .with_key(key)
                .with_error_code(code)
                .with_error_message(None)
                .with_node_id(node.id.into())
                .with_host(text(node.host))
                .with_port(i32::from(node.port));
            response.coordinators.push(row);
        }
        error_code::first_error(response.coordinators.iter().map(|row| row.error_code))
    };
    Ok(Outcome::message(request.asked(), &response).with_code(code))
}

fn split(found: Result<Node, Code>) -> (Code, Node) {
    match found {
        Ok(node) => (error_code::NONE, node),
        Err(code) => {
            let nowhere = Node {
                id: -1,
                host: String::new(),
                port: 0,
            };
            (code, nowhere)
        }
    }
}

async fn find(link: &Link, nodes: &Nodes, kind: i8, key: &StrBytes) -> Result<Node, Code> {
    let owner = match kind {
        TRANSACTIONS => {
            link.not_served(key.as_str());
            None
        }
        GROUPS => match link.front().group_coordinator(key.as_str()).await {
            Ok(owner) => owner,
            Err(fault) => {
                link.front().metrics().fault(fault.reason);
                return Err(error_code::COORDINATOR_NOT_AVAILABLE);
            }
        },
        _ => return Err(error_code::INVALID_REQUEST),
    };
    let id = nodes.id_of(owner.as_ref());
    let found = nodes.all().find(|node| Some(node.id) == id).cloned();
    found.ok_or(error_code::COORDINATOR_NOT_AVAILABLE)
}
