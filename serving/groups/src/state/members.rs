//! The form of members on disk.
//!
//! | what | fields |
//! |---|---|
//! | classic member | instance, client, session u32, rebalance u32, protocols, assignment |
//! | classic group | generation i32, type, protocol, leader, count u32, (id, member)… |
//! | facts | instance, rack, client, rebalance u32, topic names, pattern, assignor, classic u8, [session u32, protocols] |
//! | current | epoch i32, previous i32, state u8, count u32, (partition, epoch i32)…, revoking |

use bytes::{BufMut, BytesMut};

use super::classic::{ClassicGroup, ClassicMember};
use super::consumer::{ClassicFacts, Current, MemberFacts, MemberState};
use super::fields::{
    PARTITION_BYTES, RecordError, count, field, get_bytes, get_i32, get_optional, get_partition,
    get_partitions, get_text, get_texts, get_u8, get_u32, put_bytes, put_optional, put_partition,
    put_partitions, put_text, put_texts,
};
use crate::request::{Client, Protocol};

fn put_client(out: &mut BytesMut, client: &Client) {
    put_text(out, &client.id);
    put_text(out, &client.host);
}

fn get_client(bytes: &mut &[u8]) -> Result<Client, RecordError> {
    Ok(Client {
        id: get_text(bytes)?,
        host: get_text(bytes)?,
    })
}

fn put_protocols(out: &mut BytesMut, protocols: &[Protocol]) {
    out.put_u32_le(protocols.len() as u32);
    for protocol in protocols {
        put_text(out, &protocol.name);
        put_bytes(out, &protocol.metadata);
    }
}

fn get_protocols(bytes: &mut &[u8]) -> Result<Vec<Protocol>, RecordError> {
    let count = count(bytes, 6)?;
    let protocols = (0..count).map(|_| {
        Ok(Protocol {
            name: get_text(bytes)?,
            metadata: get_bytes(bytes)?,
        })
    });
    protocols.collect()
}

fn put_classic_member(out: &mut BytesMut, member: &ClassicMember) {
    put_optional(out, member.instance.as_ref());
    put_client(out, &member.client);
    out.put_u32_le(member.session_ms);
    out.put_u32_le(member.rebalance_ms);
    put_protocols(out, &member.protocols);
    put_bytes(out, &member.assignment);
}

fn get_classic_member(bytes: &mut &[u8]) -> Result<ClassicMember, RecordError> {
    Ok(ClassicMember {
        instance: get_optional(bytes)?,
        client: get_client(bytes)?,
        session_ms: get_u32(bytes)?,
        rebalance_ms: get_u32(bytes)?,
        protocols: get_protocols(bytes)?,
        assignment: get_bytes(bytes)?,
    })
}

pub(super) fn put_classic(out: &mut BytesMut, group: &ClassicGroup) {
    out.put_i32_le(group.generation);
    put_text(out, &group.protocol_type);
    put_text(out, &group.protocol);
    put_text(out, &group.leader);
    out.put_u32_le(group.members.len() as u32);
    for (id, member) in &group.members {
        put_text(out, id);
        put_classic_member(out, member);
    }
}

pub(super) fn get_classic(bytes: &mut &[u8]) -> Result<ClassicGroup, RecordError> {
    let mut group = ClassicGroup {
        generation: get_i32(bytes)?,
        protocol_type: get_text(bytes)?,
        protocol: get_text(bytes)?,
        leader: get_text(bytes)?,
        ..ClassicGroup::default()
    };
    for _ in 0..count(bytes, 23)? {
        let id = get_text(bytes)?;
        group.members.insert(id, get_classic_member(bytes)?);
    }
    Ok(group)
}

pub(super) fn put_facts(out: &mut BytesMut, facts: &MemberFacts) {
    put_optional(out, facts.instance.as_ref());
    put_optional(out, facts.rack.as_ref());
    put_client(out, &facts.client);
    out.put_u32_le(facts.rebalance_ms);
    put_texts(out, &facts.topics);
    put_optional(out, facts.pattern.as_ref());
    put_optional(out, facts.assignor.as_ref());
    out.put_u8(facts.classic.is_some().into());
    if let Some(classic) = &facts.classic {
        out.put_u32_le(classic.session_ms);
        put_protocols(out, &classic.protocols);
    }
}

pub(super) fn get_facts(bytes: &mut &[u8]) -> Result<MemberFacts, RecordError> {
    Ok(MemberFacts {
        instance: get_optional(bytes)?,
        rack: get_optional(bytes)?,
        client: get_client(bytes)?,
        rebalance_ms: get_u32(bytes)?,
        topics: get_texts(bytes)?,
        pattern: get_optional(bytes)?,
        assignor: get_optional(bytes)?,
        classic: match get_u8(bytes)? {
            0 => None,
            1 => Some(ClassicFacts {
                session_ms: get_u32(bytes)?,
                protocols: get_protocols(bytes)?,
            }),
            other => return Err(field("flag", other.into())),
        },
    })
}

pub(super) fn put_current(out: &mut BytesMut, current: &Current) {
    out.put_i32_le(current.epoch);
    out.put_i32_le(current.previous_epoch);
    out.put_u8(match current.state {
        MemberState::Stable => 0,
        MemberState::Unrevoked => 1,
        MemberState::Unreleased => 2,
    });
    out.put_u32_le(current.assigned.len() as u32);
    for (partition, epoch) in &current.assigned {
        put_partition(out, *partition);
        out.put_i32_le(*epoch);
    }
    put_partitions(out, &current.revoking);
}

pub(super) fn get_current(bytes: &mut &[u8]) -> Result<Current, RecordError> {
    let (epoch, previous_epoch) = (get_i32(bytes)?, get_i32(bytes)?);
    let state = match get_u8(bytes)? {
        0 => MemberState::Stable,
        1 => MemberState::Unrevoked,
        2 => MemberState::Unreleased,
        other => return Err(field("state of a member", other.into())),
    };
    let count = count(bytes, PARTITION_BYTES + 4)?;
    let assigned = (0..count).map(|_| Ok((get_partition(bytes)?, get_i32(bytes)?)));
    Ok(Current {
        epoch,
        previous_epoch,
        state,
        assigned: assigned.collect::<Result<_, RecordError>>()?,
        revoking: get_partitions(bytes)?,
    })
}
