//! A coordinator for tests: time that is turned by hand, a chain in memory, and after each input the proof that live equals replay.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hulse_proto::id::{Offset, PartitionId, TopicId};
use hulse_proto::mutant::Mutation;
use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;
use uuid::Uuid;

use crate::*;

pub(crate) fn topic(number: u8) -> TopicId {
    TopicId(Uuid::from_u128(number.into()))
}

pub(crate) fn at(number: u8, index: u32) -> PartitionId {
    PartitionId {
        topic: topic(number),
        index,
    }
}

/// Topics `t1`, `t2`… with so many partitions.
pub(crate) fn topics(partitions: &[u32]) -> Arc<TopicsView> {
    let topics = partitions.iter().zip(1..).map(|(partitions, number)| {
        let id = topic(number);
        let partitions = *partitions;
        (
            Arc::from(format!("t{number}")),
            TopicFacts { id, partitions },
        )
    });
    Arc::new(TopicsView::new(topics))
}

pub(crate) struct World {
    pub(crate) coordinator: Coordinator,
    pub(crate) now: Now,
    pub(crate) answers: BTreeMap<RequestId, Answer>,
    /// Effects that are neither answers nor appends.
    pub(crate) told: Vec<Effect>,
    /// Appends are not confirmed by themselves.
    pub(crate) slow: bool,
    pub(crate) chain: Vec<bytes::Bytes>,
    pub(crate) replayed: ShardState,
    topics: Arc<TopicsView>,
    config: GroupsConfig,
    mutation: Mutation,
    next: u64,
    seed: u64,
}

impl World {
    pub(crate) fn new(partitions: &[u32]) -> Self {
        Self::with(GroupsConfig::default(), partitions, 1)
    }

    pub(crate) fn with(config: GroupsConfig, partitions: &[u32], seed: u64) -> Self {
        let now = Now {
            passed_ms: 1_000,
            wall_ms: 1_700_000_000_000,
        };
        let topics = topics(partitions);
        let rng = ChaCha12Rng::seed_from_u64(seed);
        let empty = (ShardState::default(), 0);
        let coordinator = Coordinator::new(config.clone(), empty, topics.clone(), rng, now);
        Self {
            coordinator,
            now,
            answers: BTreeMap::new(),
            told: Vec::new(),
            slow: false,
            chain: Vec::new(),
            replayed: ShardState::default(),
            topics,
            config,
            mutation: Mutation::default(),
            next: 0,
            seed,
        }
    }

    /// A rule does not hold.
    pub(crate) fn mutate(&mut self, mutation: Mutation) {
        self.mutation = mutation;
        self.moves_now();
    }

    pub(crate) fn input(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            for effect in self.coordinator.on_input(self.now, input) {
                match effect {
                    Effect::Append { number, delta } => {
                        let bytes = delta.encode();
                        let read = Delta::decode(&bytes).unwrap();
                        assert_eq!(read, delta, "a delta changed on its way");
                        self.replayed.apply(&read);
                        self.chain.push(bytes);
                        assert_eq!(number, self.chain.len() as u64);
                        if !self.slow {
                            inputs.push(Input::Confirmed(number));
                        }
                    }
                    Effect::Answer(id, answer) => {
                        let former = self.answers.insert(id, answer);
                        assert!(former.is_none(), "{id:?} is answered twice");
                    }
                    other => self.told.push(other),
                }
            }
            assert_eq!(
                &self.replayed,
                self.coordinator.state(),
                "live and replay differ"
            );
        }
    }

    pub(crate) fn send(&mut self, request: Request) -> RequestId {
        self.next += 1;
        let id = RequestId(self.next);
        self.input(Input::Request(id, request));
        id
    }

    pub(crate) fn ask(&mut self, request: Request) -> Answer {
        let id = self.send(request);
        self.answers.remove(&id).expect("it is answered at once")
    }

    pub(crate) fn take(&mut self, id: RequestId) -> Option<Answer> {
        self.answers.remove(&id)
    }

    /// Time passes, and each timer fires when it is due.
    pub(crate) fn pass(&mut self, ms: u64) {
        let end = self.now.passed_ms + ms;
        loop {
            let due = self.coordinator.due().clamp(self.now.passed_ms, end);
            self.now.wall_ms += (due - self.now.passed_ms) as i64;
            self.now.passed_ms = due;
            if self.coordinator.due() > due {
                return;
            }
            self.input(Input::Tick);
            if due == end && self.coordinator.due() > end {
                return;
            }
        }
    }

    /// The coordinator moves: what is durable stays, and what waits is not answered.
    pub(crate) fn moves(&mut self, durable: usize) {
        self.chain.truncate(durable);
        let mut state = ShardState::default();
        for bytes in &self.chain {
            state.apply(&Delta::decode(bytes).unwrap());
        }
        let read = ShardState::decode(&state.encode()).unwrap();
        assert_eq!(read, state, "a snapshot changed on its way");
        self.replayed = state;
        self.seed += 1;
        self.coordinator = Coordinator::new(
            self.config.clone(),
            (read, durable as u64),
            self.topics.clone(),
            ChaCha12Rng::seed_from_u64(self.seed),
            self.now,
        )
        .mutated(self.mutation, self.now);
    }

    pub(crate) fn moves_now(&mut self) {
        self.moves(self.chain.len());
    }

    pub(crate) fn set_topics(&mut self, partitions: &[u32]) {
        self.topics = topics(partitions);
        self.input(Input::Topics(self.topics.clone()));
    }

    pub(crate) fn describe(&mut self, group: &str) -> Description {
        let group = group.into();
        match self.ask(Request::Describe { group }) {
            Answer::Described(Ok(description)) => description,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn commit(
        &mut self,
        commit: Commit,
    ) -> Result<Vec<Result<(), GroupError>>, GroupError> {
        match self.ask(Request::Commit(commit)) {
            Answer::Committed(answer) => {
                answer.map(|all| all.into_iter().map(|(_, r)| r).collect())
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn committed(
        &mut self,
        group: &str,
        partition: PartitionId,
    ) -> Option<CommittedOffset> {
        let fetch = FetchOffsets {
            group: group.into(),
            member: None,
            partitions: Some(vec![partition]),
        };
        match self.ask(Request::Fetch(fetch)) {
            Answer::Fetched(Ok(mut found)) => found.remove(0).1,
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn commit_of(
    group: &str,
    member: &str,
    epoch: i32,
    partition: PartitionId,
    offset: u64,
) -> Commit {
    Commit {
        group: group.into(),
        member: member.into(),
        instance: None,
        epoch,
        member_epochs: true,
        held_only: false,
        offsets: vec![NewOffset {
            partition,
            offset: Offset(offset),
            leader_epoch: 3,
            metadata: None,
        }],
    }
}

/// The bytes of a classic consumer's subscription, with what it owns.
pub(crate) fn subscription(topics: &[&str], owned: &BTreeMap<Arc<str>, Vec<u32>>) -> bytes::Bytes {
    let mut out = vec![0, 1];
    out.extend((topics.len() as u32).to_be_bytes());
    let text = |out: &mut Vec<u8>, text: &str| {
        out.extend((text.len() as u16).to_be_bytes());
        out.extend(text.as_bytes());
    };
    topics.iter().for_each(|topic| text(&mut out, topic));
    out.extend([0xff; 4]);
    out.extend((owned.len() as u32).to_be_bytes());
    for (topic, indexes) in owned {
        text(&mut out, topic);
        out.extend((indexes.len() as u32).to_be_bytes());
        indexes
            .iter()
            .for_each(|index| out.extend(index.to_be_bytes()));
    }
    out.into()
}

pub(crate) fn protocol(name: &str, metadata: impl Into<bytes::Bytes>) -> Protocol {
    Protocol {
        name: name.into(),
        metadata: metadata.into(),
    }
}

/// A join of a classic consumer with protocol `range`, of topic `t1`.
pub(crate) fn join(group: &str, member: &str) -> Join {
    Join {
        group: group.into(),
        member: member.into(),
        instance: None,
        client: Client {
            id: "app".into(),
            host: "h".into(),
        },
        session_ms: 10_000,
        rebalance_ms: 30_000,
        protocol_type: "consumer".into(),
        protocols: vec![protocol("range", subscription(&["t1"], &BTreeMap::new()))],
        id_required: false,
        skip_assignment: true,
    }
}

pub(crate) fn sync(
    group: &str,
    member: &str,
    generation: i32,
    parts: &[(&Arc<str>, &str)],
) -> Request {
    let assignments = parts.iter();
    let assignments = assignments.map(|(member, bytes)| {
        (
            (*member).clone(),
            bytes::Bytes::copy_from_slice(bytes.as_bytes()),
        )
    });
    Request::Sync(Sync {
        group: group.into(),
        member: member.into(),
        instance: None,
        generation,
        protocol_type: None,
        protocol: None,
        assignments: assignments.collect(),
    })
}

pub(crate) fn beat(group: &str, member: &str, generation: i32) -> Request {
    Request::Beat(Beat {
        group: group.into(),
        member: member.into(),
        instance: None,
        generation,
    })
}

/// A heartbeat of the newer protocol that joins for topic `t1`.
pub(crate) fn joins(group: &str, member: &str) -> MemberBeat {
    MemberBeat {
        group: group.into(),
        member: member.into(),
        rebalance_ms: Some(20_000),
        topics: Some(["t1".into()].into()),
        owned: Some(BTreeSet::new()),
        ..MemberBeat::default()
    }
}

/// One that stays.
pub(crate) fn stays(group: &str, member: &str, epoch: i32) -> MemberBeat {
    MemberBeat {
        group: group.into(),
        member: member.into(),
        epoch,
        ..MemberBeat::default()
    }
}
