//! Sorted lists of numbers, packed into some bytes per item.
//!
//! A list is cut into blocks of at most [`BLOCK_ITEMS`]; each begins with whole numbers, by which it is found, and goes on with
//! differences of seven bits to the byte. Only the last items, which do not fill a block yet, stand unpacked. A change in the middle
//! packs the blocks anew that it touches.
//!
//! # Invariants
//! 1. Items ascend by their keys over all blocks; no block is empty.
//! 2. A list with items has some in its tail.

/// Items of a block: a look-up unpacks half of them in the middle.
const BLOCK_ITEMS: usize = 32;

/// What is packed.
pub(super) trait Packed: Copy {
    /// By which it is found: ascends in the list, but need not be unique.
    fn key(&self) -> u64;

    /// The item that comes before the first of a block with this key, as far as differences go.
    fn before(key: u64) -> Self;

    /// Appends what distinguishes it from the item before it.
    fn pack(&self, before: &Self, out: &mut Vec<u8>);

    /// Takes it out again.
    fn unpack(before: &Self, bytes: &mut &[u8]) -> Self;

    /// The file that it is about; 0 where that is no question.
    fn file(&self) -> u32;
}

#[derive(Debug, Clone, Copy)]
struct Block {
    key: u64,
    /// Where in the bytes it begins.
    at: u32,
    /// The lowest and the highest file.
    files: (u32, u32),
    items: u8,
}

#[derive(Debug, Clone)]
pub(super) struct PackedList<T> {
    blocks: Vec<Block>,
    bytes: Vec<u8>,
    tail: Vec<T>,
}

impl<T> Default for PackedList<T> {
    fn default() -> Self {
        Self {
            blocks: Vec::new(),
            bytes: Vec::new(),
            tail: Vec::new(),
        }
    }
}

impl<T: Packed> PackedList<T> {
    /// Adds an item behind all others; the key must not be below that of the last item.
    pub fn push(&mut self, item: T) {
        if self.tail.len() == BLOCK_ITEMS {
            let (block, packed) = packed(&self.tail, self.bytes.len());
            grow(&mut self.blocks, 1);
            self.blocks.push(block);
            grow(&mut self.bytes, packed.len());
            self.bytes.extend(packed);
            self.tail.clear();
        }
        grow(&mut self.tail, 1);
        self.tail.push(item);
    }

    /// Changes the items with keys of `first..end`, and some beside them.
    pub fn edit(&mut self, first: u64, end: u64, change: impl FnOnce(&mut Vec<T>)) {
        let before = self.blocks.partition_point(|block| block.key <= first);
        let from = before.saturating_sub(1);
        let to = self
            .blocks
            .partition_point(|block| block.key < end)
            .max(from);
        let mut items: Vec<T> = (from..to).flat_map(|number| self.block(number)).collect();
        let with_tail = to == self.blocks.len();
        if with_tail {
            items.append(&mut self.tail);
        }
        change(&mut items);
        if with_tail {
            let whole = items.len().saturating_sub(1) / BLOCK_ITEMS * BLOCK_ITEMS;
            self.tail = items.split_off(whole);
        }
        self.replace(from, to, &items);
        if self.tail.is_empty()
            && let Some(last) = self.blocks.len().checked_sub(1)
        {
            self.tail = self.block(last).collect();
            self.bytes.truncate(self.blocks[last].at as usize);
            self.blocks.pop();
        }
    }

    /// Packs these items in the place of some blocks.
    fn replace(&mut self, from: usize, to: usize, items: &[T]) {
        let place = |number: usize| match self.blocks.get(number) {
            Some(block) => block.at as usize,
            None => self.bytes.len(),
        };
        let (start, stop) = (place(from), place(to));
        let (mut blocks, mut bytes) = (Vec::new(), Vec::new());
        let most = items
            .len()
            .div_ceil(items.len().div_ceil(BLOCK_ITEMS).max(1));
        for some in items.chunks(most.max(1)) {
            let (block, packed) = packed(some, start + bytes.len());
            blocks.push(block);
            bytes.extend(packed);
        }
        let behind = start + bytes.len();
        for block in &mut self.blocks[to..] {
            block.at = (block.at as usize - stop + behind) as u32;
        }
        self.blocks.splice(from..to, blocks);
        self.bytes.splice(start..stop, bytes);
    }

    fn block(&self, number: usize) -> impl Iterator<Item = T> + '_ {
        let block = self.blocks[number];
        let mut bytes = &self.bytes[block.at as usize..];
        let mut before = T::before(block.key);
        (0..block.items).map(move |_| {
            before = T::unpack(&before, &mut bytes);
            before
        })
    }

    /// All items, in order.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        let packed = (0..self.blocks.len()).flat_map(|number| self.block(number));
        packed.chain(self.tail.iter().copied())
    }

    /// The last item.
    pub fn last(&self) -> Option<T> {
        self.tail.last().copied()
    }

    /// The last item whose key is at most this.
    pub fn last_at_most(&self, key: u64) -> Option<T> {
        let inside = self.tail.partition_point(|item| item.key() <= key);
        if let Some(found) = inside.checked_sub(1) {
            return Some(self.tail[found]);
        }
        let after = self.blocks.partition_point(|block| block.key <= key);
        let items = self.block(after.checked_sub(1)?);
        items.take_while(|item| item.key() <= key).last()
    }

    /// Those of one file; blocks without any are passed over.
    pub fn of_file(&self, file: u32) -> impl Iterator<Item = T> + '_ {
        let blocks = (0..self.blocks.len()).filter(move |number| {
            let (low, high) = self.blocks[*number].files;
            (low..=high).contains(&file)
        });
        let packed = blocks.flat_map(|number| self.block(number));
        let all = packed.chain(self.tail.iter().copied());
        all.filter(move |item| item.file() == file)
    }

    /// Memory beside the value itself, bytes.
    pub fn memory_bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<Block>()
            + self.bytes.capacity()
            + self.tail.capacity() * size_of::<T>()
    }

    /// Gives back what it has grown too much.
    pub fn shrink(&mut self) {
        self.blocks.shrink_to_fit();
        self.bytes.shrink_to_fit();
        self.tail.shrink_to_fit();
    }
}

impl<T: Packed + PartialEq> PartialEq for PackedList<T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<T: Packed + Eq> Eq for PackedList<T> {}

/// A block of these items, at least one, that begins at `at`; and its bytes.
fn packed<T: Packed>(items: &[T], at: usize) -> (Block, Vec<u8>) {
    let mut bytes = Vec::with_capacity(items.len() * 8);
    let key = items[0].key();
    let mut files = (u32::MAX, 0);
    let mut before = T::before(key);
    for item in items {
        item.pack(&before, &mut bytes);
        files = (files.0.min(item.file()), files.1.max(item.file()));
        before = *item;
    }
    let block = Block {
        key,
        at: at as u32,
        files,
        items: items.len() as u8,
    };
    (block, bytes)
}

/// Grows by an eighth: there are very many of these lists, and doubling them would waste a third of the budget.
fn grow<T>(list: &mut Vec<T>, by: usize) {
    if list.len() + by > list.capacity() {
        list.reserve_exact(by.max(list.len() / 8));
    }
}

/// Appends a number, seven bits to the byte.
pub(super) fn put(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// What [`put`] wrote.
pub(super) fn take(bytes: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0, 0);
    while let Some((byte, rest)) = bytes.split_first() {
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
    }
    number
}

/// A difference of file numbers, so that small ones of either sign are small.
pub(super) fn put_difference(to: u32, from: u32, out: &mut Vec<u8>) {
    let difference = i64::from(to) - i64::from(from);
    put(((difference << 1) ^ (difference >> 63)) as u64, out);
}

/// What [`put_difference`] wrote.
pub(super) fn take_difference(from: u32, bytes: &mut &[u8]) -> u32 {
    let packed = take(bytes);
    let difference = (packed >> 1) as i64 ^ -((packed & 1) as i64);
    (i64::from(from) + difference) as u32
}
