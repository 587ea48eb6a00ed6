//! JoinGroup, SyncGroup, Heartbeat and LeaveGroup: the classic protocol.

use std::sync::Arc;

use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    LeaveGroupResponse, SyncGroupRequest, SyncGroupResponse,
};
use serving_groups::{
    Answer, Beat, GroupError, Join, Joined, Leave, Leaver, Protocol, Request as Ask, Sync,
};

use super::answers::{ask, client, ms, name, of_error, of_result, optional, told, unexpected};
use crate::error_code::{self, Code};
use crate::link::Link;
use crate::requests::{FirstStage, Outcome, ended};
use crate::wire::{Broken, Request, text};

/// First version with a time to join again that is not the session.
const REBALANCE_TIME_FROM: i16 = 1;
/// First version whose clients come back with an id (KIP-394).
const IDS_FROM: i16 = 4;
/// First version whose leaders may be told to assign nothing (KIP-814).
const SKIP_FROM: i16 = 9;
/// First version that leaves for several.
const LEAVERS_FROM: i16 = 3;

/// Joins; the rest of the connection goes on while the group forms.
pub(crate) fn join(link: Arc<Link>, mut request: Request) -> Result<FirstStage, Broken> {
    let message: JoinGroupRequest = request.decode()?;
    let version = request.version;
    let rebalance = match version < REBALANCE_TIME_FROM {
        true => message.session_timeout_ms,
        false => message.rebalance_timeout_ms,
    };
    let protocols = message.protocols.iter().map(|protocol| Protocol {
        name: name(&protocol.name),
        metadata: protocol.metadata.clone(),
    });
    let join = Join {
        group: name(&message.group_id.0),
        member: name(&message.member_id),
        instance: optional(message.group_instance_id.as_ref()),
        client: client(&link, request.client()),
        session_ms: ms(message.session_timeout_ms),
        rebalance_ms: ms(rebalance),
        protocol_type: name(&message.protocol_type),
        protocols: protocols.collect(),
        id_required: version >= IDS_FROM && message.group_instance_id.is_none(),
        skip_assignment: version >= SKIP_FROM,
    };
    Ok(FirstStage::later(async move {
        let answer = ask(&link, Ask::Join(Box::new(join))).await;
        let (code, response) = joined(&message, answer);
        let response = response.with_error_code(code);
        let outcome = Outcome::message(request.asked(), &response).with_code(code);
        ended(&link, request, outcome)
    }))
}

fn joined(message: &JoinGroupRequest, answer: Result<Answer, Code>) -> (Code, JoinGroupResponse) {
    let refused = JoinGroupResponse::default()
        .with_generation_id(-1)
        .with_protocol_type(Some(message.protocol_type.clone()))
        .with_protocol_name(Some(Default::default()))
        .with_member_id(message.member_id.clone());
    match answer {
        Ok(Answer::Joined(Ok(joined))) => (error_code::NONE, is_in(joined)),
        Ok(Answer::Joined(Err(error))) => {
            let code = of_error(&error);
            match error {
                GroupError::MemberIdRequired(id) => (code, refused.with_member_id(told(&id))),
                _ => (code, refused),
            }
        }
        Ok(other) => (unexpected(&other), refused),
        Err(code) => (code, refused),
    }
}

fn is_in(joined: Joined) -> JoinGroupResponse {
    let members = joined.members.into_iter().map(|member| {
        JoinGroupResponseMember::default()
            .with_member_id(told(&member.member))
            .with_group_instance_id(member.instance.as_ref().map(told))
            .with_metadata(member.metadata)
    });
    JoinGroupResponse::default()
        .with_generation_id(joined.generation)
        .with_protocol_type(Some(told(&joined.protocol_type)))
        .with_protocol_name(Some(told(&joined.protocol)))
        .with_leader(told(&joined.leader))
        .with_skip_assignment(joined.skip_assignment)
        .with_member_id(told(&joined.member))
        .with_members(members.collect())
}

/// Brings or waits for the assignment; the rest of the connection goes on beside it.
pub(crate) fn sync(link: Arc<Link>, mut request: Request) -> Result<FirstStage, Broken> {
    let message: SyncGroupRequest = request.decode()?;
    let assignments = message.assignments.iter();
    let assignments = assignments.map(|one| (name(&one.member_id), one.assignment.clone()));
    let sync = Sync {
        group: name(&message.group_id.0),
        member: name(&message.member_id),
        instance: optional(message.group_instance_id.as_ref()),
        generation: message.generation_id,
        protocol_type: optional(message.protocol_type.as_ref()),
        protocol: optional(message.protocol_name.as_ref()),
        assignments: assignments.collect(),
    };
    Ok(FirstStage::later(async move {
        let (code, response) = match ask(&link, Ask::Sync(sync)).await {
            Ok(Answer::Synced(Ok(synced))) => {
                let response = SyncGroupResponse::default()
                    .with_protocol_type(Some(told(&synced.protocol_type)))
                    .with_protocol_name(Some(told(&synced.protocol)))
                    .with_assignment(synced.assignment);
                (error_code::NONE, response)
            }
            Ok(Answer::Synced(Err(error))) => (of_error(&error), SyncGroupResponse::default()),
            Ok(other) => (unexpected(&other), SyncGroupResponse::default()),
            Err(code) => (code, SyncGroupResponse::default()),
        };
        let response = response.with_error_code(code);
        let outcome = Outcome::message(request.asked(), &response).with_code(code);
        ended(&link, request, outcome)
    }))
}

/// A heartbeat.
pub(crate) async fn beat(link: &Arc<Link>, mut request: Request) -> Result<Outcome, Broken> {
    let message: HeartbeatRequest = request.decode()?;
    let beat = Beat {
        group: name(&message.group_id.0),
        member: name(&message.member_id),
        instance: optional(message.group_instance_id.as_ref()),
        generation: message.generation_id,
    };
    let code = match ask(link, Ask::Beat(beat)).await {
        Ok(Answer::Beat(result)) => of_result(&result),
        Ok(other) => unexpected(&other),
        Err(code) => code,
    };
    let response = HeartbeatResponse::default().with_error_code(code);
    Ok(Outcome::message(request.asked(), &response).with_code(code))
}

/// A member goes, or several.
pub(crate) async fn leave(link: &Arc<Link>, mut request: Request) -> Result<Outcome, Broken> {
    let message: LeaveGroupRequest = request.decode()?;
    let one = request.version < LEAVERS_FROM;
    let members = match one {
        true => vec![Leaver {
            member: name(&message.member_id),
            instance: None,
        }],
        false => {
            let members = message.members.iter().map(|member| Leaver {
                member: name(&member.member_id),
                instance: optional(member.group_instance_id.as_ref()),
            });
            members.collect()
        }
    };
    let group = name(&message.group_id.0);
    let (code, rows) = match ask(link, Ask::Leave(Leave { group, members })).await {
        Ok(Answer::Left(Ok(left))) => (error_code::NONE, left),
        Ok(Answer::Left(Err(error))) => (of_error(&error), Vec::new()),
        Ok(other) => (unexpected(&other), Vec::new()),
        Err(code) => (code, Vec::new()),
    };
    let rows = rows.into_iter().map(|(leaver, result)| {
        MemberResponse::default()
            .with_member_id(text(leaver.member.to_string()))
            .with_group_instance_id(leaver.instance.as_ref().map(told))
            .with_error_code(of_result(&result))
    });
    let rows: Vec<_> = rows.collect();
    let first = error_code::first_error(rows.iter().map(|row| row.error_code));
    let response = match one {
        true if code == error_code::NONE => LeaveGroupResponse::default().with_error_code(first),
        _ => LeaveGroupResponse::default()
            .with_error_code(code)
            .with_members(if one { Vec::new() } else { rows }),
    };
    let code = if code == error_code::NONE {
        first
    } else {
        code
    };
    Ok(Outcome::message(request.asked(), &response).with_code(code))
}
