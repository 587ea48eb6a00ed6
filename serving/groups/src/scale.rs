//! Groups at their limits: a hundred members that read on while one comes, ten thousand that want in, and bytes that lie.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use crate::embedded::{decode_assignment, encode_assignment};
use crate::limits::{GROUP_BYTES_MAX, MEMBER_BYTES_MAX};
use crate::testing::{World, at, beat, commit_of, join, joins, protocol, stays, subscription};
use crate::{
    Answer, GroupError, GroupState, GroupsConfig, Join, Joined, MemberAnswer, MemberBeat,
    Partitions, Request, Sync,
};

const MEMBERS: usize = 100;
const PARTITIONS: u32 = 200;
/// What members are told.
const HEARTBEAT_MS: u64 = 5_000;

fn heard(world: &mut World, beat: MemberBeat) -> Result<MemberAnswer, GroupError> {
    match world.ask(Request::Member(Box::new(beat))) {
        Answer::Member(answer) => answer,
        other => panic!("{other:?}"),
    }
}

/// A member as a client keeps it.
struct Client {
    id: String,
    epoch: i32,
    owned: Partitions,
    /// It has to show what it has.
    full: bool,
}

impl Client {
    fn joined(world: &mut World, number: usize) -> Self {
        let id = format!("m{number:03}");
        let answer = heard(world, joins("g", &id)).unwrap();
        Self {
            id,
            epoch: answer.epoch,
            owned: answer.assigned.unwrap(),
            full: false,
        }
    }

    /// One heartbeat; what it is told to give up it gives up at once.
    fn beats(&mut self, world: &mut World) {
        let owned = self.full.then(|| self.owned.clone());
        let beat = MemberBeat {
            owned,
            ..stays("g", &self.id, self.epoch)
        };
        let answer = heard(world, beat).unwrap();
        self.epoch = answer.epoch;
        self.full = answer.assigned.is_some();
        if let Some(assigned) = answer.assigned {
            self.owned = assigned;
        }
    }

    /// It goes on with what it has: commits of it are taken, whatever the others do.
    fn reads_on(&self, world: &mut World, offset: u64) {
        for partition in &self.owned {
            let commit = commit_of("g", &self.id, self.epoch, *partition, offset);
            assert_eq!(world.commit(commit), Ok(vec![Ok(())]), "{}", self.id);
        }
    }
}

/// Heartbeats of all, two rounds each, until everybody has what it should; in rounds.
fn converge(world: &mut World, clients: &mut [Client]) -> u64 {
    for round in 1..=4 {
        for client in clients.iter_mut() {
            client.beats(world);
            // A member that was told to give something up says at once that it has.
            if client.full {
                client.beats(world);
            }
        }
        if world.describe("g").listing.state == GroupState::Stable {
            return round;
        }
        world.pass(HEARTBEAT_MS);
    }
    panic!("not within four rounds of heartbeats");
}

fn is_shared(clients: &[Client]) {
    let all: Vec<_> = clients.iter().flat_map(|client| &client.owned).collect();
    assert_eq!(all.len(), PARTITIONS as usize, "none is had by two");
    let all: BTreeSet<_> = all.into_iter().collect();
    assert_eq!(all.len(), PARTITIONS as usize, "all are had");
}

/// Who had what before and has it still.
fn unmoved(before: &[Partitions], clients: &[Client]) -> usize {
    let kept = before.iter().zip(clients);
    kept.map(|(before, client)| before.intersection(&client.owned).count())
        .sum()
}

/// serving.md A24, A25: what does not move is read all the while, and no more moves than must.
#[test]
fn hundred_members_on_two_hundred_partitions_read_on_while_one_comes_and_goes() {
    let mut world = World::new(&[PARTITIONS]);
    let mut clients: Vec<Client> = (1..MEMBERS)
        .map(|number| Client::joined(&mut world, number))
        .collect();
    converge(&mut world, &mut clients);
    is_shared(&clients);

    let before: Vec<_> = clients.iter().map(|client| client.owned.clone()).collect();
    clients.push(Client::joined(&mut world, MEMBERS));
    for client in &clients {
        client.reads_on(&mut world, 1);
    }
    let rounds = converge(&mut world, &mut clients);
    assert!(rounds <= 2, "{rounds} rounds of heartbeats");
    is_shared(&clients);
    let moved = PARTITIONS as usize - unmoved(&before, &clients);
    assert_eq!(moved, clients[MEMBERS - 1].owned.len(), "no other moved");
    assert_eq!(moved, 2);

    let before: Vec<_> = clients.iter().map(|client| client.owned.clone()).collect();
    let leaver = clients.remove(0);
    heard(&mut world, stays("g", &leaver.id, -1)).unwrap();
    for client in &clients {
        client.reads_on(&mut world, 2);
    }
    assert!(converge(&mut world, &mut clients) <= 2);
    is_shared(&clients);
    assert_eq!(
        unmoved(&before[1..], &clients),
        PARTITIONS as usize - leaver.owned.len()
    );
}

/// A group takes as many as it may (by default 1,000); the rest is told so, at once, and costs nothing that stays.
#[test]
fn ten_thousand_members_of_the_newer_protocol_want_in_and_the_limit_holds() {
    let most = GroupsConfig::default().members_max as usize;
    let mut world = World::new(&[PARTITIONS]);
    let mut refused = 0;
    for number in 0..10_000 {
        match heard(&mut world, joins("g", &format!("m{number}"))) {
            Ok(_) => assert!(number < most),
            Err(GroupError::GroupFull) => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(refused, 10_000 - most);
    assert_eq!(world.describe("g").members.len(), most);
    // Who is in goes on.
    let epoch = i32::try_from(most).unwrap();
    assert!(heard(&mut world, stays("g", &format!("m{}", most - 1), epoch)).is_ok());
}

#[test]
fn ten_thousand_classic_members_want_in_and_the_limit_holds() {
    let most = GroupsConfig::default().members_max as usize;
    let mut world = World::new(&[PARTITIONS]);
    let mut waiting = Vec::new();
    let mut refused = 0;
    for _ in 0..10_000 {
        let id = world.send(Request::Join(Box::new(join("g", ""))));
        match world.take(id) {
            None => waiting.push(id),
            Some(Answer::Joined(Err(GroupError::GroupFull))) => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((waiting.len(), refused), (most, 10_000 - most));
    world.pass(40_000);
    let joined = waiting.into_iter().filter_map(|id| match world.take(id) {
        Some(Answer::Joined(Ok(joined))) => Some(joined),
        _ => None,
    });
    let joined: Vec<Joined> = joined.collect();
    assert_eq!(joined.len(), most, "all of them are in one generation");
    assert!(joined.iter().all(|member| member.generation == 1));
}

/// A classic group of two that is about to be assigned: the leader, and the other.
fn two(world: &mut World) -> (Joined, Joined) {
    let ids: Vec<_> = (0..2)
        .map(|_| {
            let metadata = subscription(&["t1"], &BTreeMap::new());
            let request = Join {
                protocols: vec![protocol("cooperative-sticky", metadata)],
                ..join("g", "")
            };
            world.send(Request::Join(Box::new(request)))
        })
        .collect();
    world.pass(6_100);
    let mut joined: Vec<Joined> = Vec::new();
    for id in ids {
        match world.take(id) {
            Some(Answer::Joined(Ok(member))) => joined.push(member),
            other => panic!("{other:?}"),
        }
    }
    joined.sort_by_key(|member| member.members.is_empty());
    let other = joined.pop().unwrap();
    (joined.pop().unwrap(), other)
}

fn assign(world: &mut World, leader: &Joined, assignments: Vec<(Arc<str>, Bytes)>) -> Answer {
    world.ask(Request::Sync(Sync {
        group: "g".into(),
        member: leader.member.clone(),
        instance: None,
        generation: leader.generation,
        protocol_type: None,
        protocol: None,
        assignments,
    }))
}

fn bytes_of(answer: Answer) -> Bytes {
    match answer {
        Answer::Synced(Ok(synced)) => synced.assignment,
        other => panic!("{other:?}"),
    }
}

fn parts(topic: &str, indexes: &[u32]) -> Bytes {
    encode_assignment(&[(Arc::from(topic), indexes.to_vec())].into())
}

#[test]
fn assignment_for_strangers_and_twice_for_one_gives_each_member_its_last_bytes() {
    let mut world = World::new(&[4]);
    let (leader, other) = two(&mut world);
    let lies = vec![
        ("nobody".into(), Bytes::from_static(b"none of ours")),
        (leader.member.clone(), Bytes::from_static(b"first")),
        (leader.member.clone(), Bytes::from_static(b"second")),
    ];
    assert_eq!(
        bytes_of(assign(&mut world, &leader, lies))[..],
        b"second"[..]
    );
    let answer = assign(&mut world, &other, Vec::new());
    assert!(bytes_of(answer).is_empty(), "the leader named it not");
    assert_eq!(world.describe("g").members.len(), 2);
}

#[test]
fn assignment_that_is_too_large_in_sum_is_refused_and_the_group_rebalances() {
    let mut world = World::new(&[4]);
    let (leader, other) = two(&mut world);
    let large = Bytes::from(vec![7; MEMBER_BYTES_MAX + 1]);
    let one = vec![(other.member.clone(), large)];
    let refused = assign(&mut world, &leader, one);
    assert_eq!(refused, Answer::Synced(Err(GroupError::GroupTooLarge)));
    let again = world.ask(beat("g", &other.member, other.generation));
    assert_eq!(again, Answer::Beat(Err(GroupError::RebalanceInProgress)));
    assert!(
        world
            .chain
            .iter()
            .all(|delta| delta.len() < GROUP_BYTES_MAX)
    );
}

/// A static member with so many bytes; the answer comes when the generation does.
fn grown(member: &str, number: usize, bytes: usize) -> Request {
    Request::Join(Box::new(Join {
        instance: Some(format!("static-{number}").into()),
        protocols: vec![protocol("range", vec![7; bytes])],
        ..join("g", member)
    }))
}

/// What is too large to come in does not grow in there either: neither where a member joins again, nor where another process takes its
/// place.
#[test]
fn members_that_came_in_small_do_not_grow_beyond_what_a_group_may_take() {
    let mut world = World::new(&[4]);
    let members = 2 * GROUP_BYTES_MAX / MEMBER_BYTES_MAX;
    let ids: Vec<_> = (0..members)
        .map(|number| world.send(grown("", number, 10)))
        .collect();
    world.pass(6_100);
    let joined = ids.into_iter().map(|id| match world.take(id) {
        Some(Answer::Joined(Ok(joined))) => joined,
        other => panic!("{other:?}"),
    });
    let joined: Vec<Joined> = joined.collect();
    let leader = joined.iter().find(|one| !one.members.is_empty()).unwrap();
    let generation = leader.generation;
    let leads = world.send(crate::testing::sync("g", &leader.member, generation, &[]));
    assert!(matches!(world.take(leads), Some(Answer::Synced(Ok(_)))));

    // The member itself, and then another process each time, without an id.
    for by_itself in [true, false] {
        let mut refused = 0;
        for (number, member) in joined.iter().enumerate() {
            let member = if by_itself { &*member.member } else { "" };
            let id = world.send(grown(member, number, MEMBER_BYTES_MAX));
            refused += match world.take(id) {
                Some(Answer::Joined(Err(GroupError::GroupTooLarge))) => 1,
                _ => 0,
            };
        }
        assert!(refused > members / 2, "{refused} of {members}");
    }
    let largest = world.chain.iter().map(|delta| delta.len()).max();
    assert!(largest.is_some_and(|bytes| bytes < 2 * GROUP_BYTES_MAX));
}

#[test]
fn names_of_topics_that_members_want_are_bounded_together() {
    let mut world = World::new(&[4]);
    let names = |number: usize| {
        let names = (0..10_000).map(|at| Arc::from(format!("{number:0>100}-{at:0>300}")));
        names.collect::<BTreeSet<Arc<str>>>()
    };
    let mut results = (0..6).map(|number| {
        let beat = MemberBeat {
            topics: Some(names(number)),
            ..joins("g", &format!("m{number}"))
        };
        heard(&mut world, beat).map(drop)
    });
    assert!(results.by_ref().take(4).all(|result| result.is_ok()));
    assert_eq!(results.next(), Some(Err(GroupError::GroupTooLarge)));
}

/// What a leader says is opaque to a classic group; a member of the newer protocol cannot share it, and says so to itself only.
#[test]
fn assignment_that_is_no_assignment_keeps_the_newer_protocol_out_and_the_group_whole() {
    let mut world = World::new(&[4]);
    let (leader, other) = two(&mut world);
    let mut huge = vec![0, 1];
    huge.extend(i32::MAX.to_be_bytes());
    let lies = vec![(other.member.clone(), Bytes::from(huge.clone()))];
    assign(&mut world, &leader, lies);
    let refused = heard(&mut world, joins("g", "newer"));
    assert_eq!(refused, Err(GroupError::InconsistentProtocol));
    let same = assign(&mut world, &other, Vec::new());
    assert_eq!(bytes_of(same)[..], huge[..]);
    let still = world.ask(beat("g", &other.member, other.generation));
    assert_eq!(still, Answer::Beat(Ok(())));
}

/// A leader gave one partition to both, one that there is not, and one of no topic: in the newer protocol each that there is comes to
/// one member, and nobody is told of the others.
#[test]
fn assignment_of_partitions_that_lie_is_put_right_by_the_newer_protocol() {
    let mut world = World::new(&[4]);
    let (leader, other) = two(&mut world);
    let lies = vec![
        (
            leader.member.clone(),
            parts("t1", &[0, 1, 2, 3, 9, u32::MAX >> 1]),
        ),
        (other.member.clone(), parts("t1", &[0, 1])),
    ];
    assign(&mut world, &leader, lies);
    let answer = heard(&mut world, joins("g", "newer")).unwrap();
    assert_eq!(answer.assigned, Some(Partitions::new()), "it waits");
    for member in [&leader, &other] {
        let again = world.ask(beat("g", &member.member, member.generation));
        assert_eq!(again, Answer::Beat(Err(GroupError::RebalanceInProgress)));
    }
    // Both come back empty-handed, as clients do that are told so, and everything is shared among three.
    let mut has = BTreeMap::new();
    for _ in 0..3 {
        for member in [&leader, &other] {
            let owned = has.get(&member.member).cloned().unwrap_or_default();
            let metadata = subscription(&["t1"], &[(Arc::from("t1"), owned)].into());
            let request = Join {
                protocols: vec![protocol("cooperative-sticky", metadata)],
                ..join("g", &member.member)
            };
            let id = world.send(Request::Join(Box::new(request)));
            let Some(Answer::Joined(Ok(joined))) = world.take(id) else {
                panic!("it did not join");
            };
            let synced = assign(&mut world, &joined, Vec::new());
            if let Answer::Synced(Ok(synced)) = synced {
                let read = decode_assignment(&synced.assignment).unwrap();
                let read: Vec<u32> = read.into_iter().map(|(_, index)| index).collect();
                has.insert(member.member.clone(), read);
            }
        }
    }
    let newer = heard(&mut world, stays("g", "newer", answer.epoch)).unwrap();
    let mut all: Vec<_> = has
        .into_values()
        .flatten()
        .map(|index| at(1, index))
        .collect();
    all.extend(newer.assigned.unwrap());
    all.sort_unstable();
    assert_eq!(all, (0..4).map(|index| at(1, index)).collect::<Vec<_>>());
}
