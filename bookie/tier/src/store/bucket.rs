//! A bucket of some store, by the name that config gives it (storage.md O18).

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use futures::TryStreamExt as _;
use futures::stream::{FuturesUnordered, StreamExt as _};
use hulse_proto::tier::{Attempt, BUCKET_BYTES_MAX, OBJECT_BYTES_MAX};
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt as _};

use crate::protocol::{Deletion, ObjectError};

/// Names in one page of a listing.
const PAGE: usize = 1000;
/// Objects that are deleted at once.
const DELETED_AT_ONCE: usize = 8;
/// Longest part of a name that config gives: what follows it takes up to 400 bytes.
const PREFIX_BYTES_MAX: usize = OBJECT_BYTES_MAX - 512;

/// Where a bucket is.
#[derive(Clone, PartialEq, Eq)]
pub enum BucketConfig {
    /// Any store that speaks S3. What is empty is taken from the environment (`AWS_REGION`, `AWS_ACCESS_KEY_ID` and so on), or from the
    /// machine's role.
    S3 {
        /// The bucket.
        bucket: String,
        /// URL of a store that is not Amazon's; empty: Amazon's. A URL with `http:` is taken as it is.
        endpoint: String,
        /// Region.
        region: String,
        /// Key.
        access_key: String,
        /// Its secret.
        secret_key: String,
    },
    /// A directory of this machine; it is made if need be.
    Directory(PathBuf),
}

impl fmt::Debug for BucketConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // No secret, not even in a log of debugging.
            Self::S3 {
                bucket, endpoint, ..
            } => write!(f, "S3 {bucket} at {endpoint:?}"),
            Self::Directory(path) => write!(f, "directory {}", path.display()),
        }
    }
}

/// Why a bucket cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A name that cannot be.
    #[error("{what} {name:?} cannot be: {why}")]
    Name {
        /// Of what.
        what: &'static str,
        /// As it was given.
        name: String,
        /// What to do.
        why: &'static str,
    },
    /// The directory cannot be made.
    #[error("directory {path}: {source}")]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The store refuses what config says of it.
    #[error("object store: {0}")]
    Store(#[source] Error),
}

/// One bucket. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Bucket {
    name: Arc<str>,
    prefix: Arc<str>,
    store: Arc<dyn ObjectStore>,
    /// It lists names in order, as S3 does: a page is asked for and no more.
    ordered: bool,
}

impl Bucket {
    /// Opens what config names; nothing is asked of a store over the network yet.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(name: &str, prefix: &str, config: &BucketConfig) -> Result<Self, OpenError> {
        let store: Arc<dyn ObjectStore> = match config {
            BucketConfig::S3 {
                bucket,
                endpoint,
                region,
                access_key,
                secret_key,
            } => {
                let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
                if !endpoint.is_empty() {
                    builder = builder
                        .with_endpoint(endpoint)
                        .with_allow_http(endpoint.starts_with("http:"));
                }
                if !region.is_empty() {
                    builder = builder.with_region(region);
                }
                if !access_key.is_empty() {
                    builder = builder
                        .with_access_key_id(access_key)
                        .with_secret_access_key(secret_key);
                }
                Arc::new(builder.build().map_err(OpenError::Store)?)
            }
            BucketConfig::Directory(path) => {
                std::fs::create_dir_all(path).map_err(|source| OpenError::Directory {
                    path: path.clone(),
                    source,
                })?;
                let store = LocalFileSystem::new_with_prefix(path).map_err(OpenError::Store)?;
                // Folders of partitions that are gone go, too.
                Arc::new(store.with_automatic_cleanup(true))
            }
        };
        let ordered = matches!(config, BucketConfig::S3 { .. });
        let bucket = Self::new(name, prefix, store)?;
        Ok(Self { ordered, ..bucket })
    }

    /// One over a store that is there already, and that may list names in any order.
    ///
    /// # Errors
    /// [`OpenError::Name`].
    pub fn new(name: &str, prefix: &str, store: Arc<dyn ObjectStore>) -> Result<Self, OpenError> {
        let refused = |what, name: &str, why| OpenError::Name {
            what,
            name: name.to_owned(),
            why,
        };
        if name.is_empty() || name.len() > BUCKET_BYTES_MAX {
            let why = "use 1 to 64 bytes";
            return Err(refused("bucket name", name, why));
        }
        let prefix = prefix.trim_matches('/');
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        let parts = prefix.split('/').all(|part| !matches!(part, "." | ".."));
        let empty = prefix.contains("//");
        if prefix.len() > PREFIX_BYTES_MAX || !prefix.chars().all(plain) || !parts || empty {
            let why = "use up to 512 bytes of letters, digits, '-', '_', '.' and '/', and no '..'";
            return Err(refused("prefix", prefix, why));
        }
        Ok(Self {
            name: name.into(),
            prefix: prefix.into(),
            store,
            ordered: false,
        })
    }

    /// Its name in config.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What names of new objects begin with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The store below.
    pub(crate) fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// The next names after `after`, and lengths, in order; empty: there are no more. Only those below the prefix.
    ///
    /// # Errors
    /// [`ObjectError::Unavailable`].
    pub async fn list(&self, after: Option<&str>) -> Result<Vec<(String, u64)>, ObjectError> {
        let prefix = (!self.prefix.is_empty()).then(|| Path::from(&*self.prefix));
        let mut page: Vec<(String, u64)> = Vec::new();
        let mut found = match after {
            Some(after) => {
                let after = path_of(after)?;
                self.store.list_with_offset(prefix.as_ref(), &after)
            }
            None => self.store.list(prefix.as_ref()),
        };
        // A directory lists in no order: the whole of it is read, and the least names are kept.
        while let Some(meta) = found
            .try_next()
            .await
            .map_err(|error| unavailable(&error))?
        {
            page.push((meta.location.to_string(), meta.size));
            if self.ordered && page.len() >= PAGE {
                break;
            }
            if page.len() >= PAGE * 2 {
                page.sort_unstable();
                page.truncate(PAGE);
            }
        }
        page.sort_unstable();
        page.truncate(PAGE);
        Ok(page)
    }
}

/// Buckets by name: a segment says which one it is in, also when new ones go elsewhere.
#[derive(Debug, Clone, Default)]
pub struct Buckets {
    all: BTreeMap<Arc<str>, Bucket>,
}

impl Buckets {
    /// These.
    pub fn new(buckets: impl IntoIterator<Item = Bucket>) -> Self {
        let named = buckets.into_iter().map(|found| (found.name.clone(), found));
        Self {
            all: named.collect(),
        }
    }

    /// One of them.
    ///
    /// # Errors
    /// [`ObjectError::NoBucket`].
    pub fn get(&self, name: &str) -> Result<&Bucket, ObjectError> {
        self.all.get(name).ok_or_else(|| ObjectError::NoBucket {
            bucket: name.to_owned(),
        })
    }

    /// Deletes objects; one that is not there counts as deleted (storage.md O11). Tries all of them, whatever happens to one.
    ///
    /// # Errors
    /// The last error. Some may be deleted.
    pub async fn delete(&self, deletion: &Deletion) -> Result<(), ObjectError> {
        let mut running = FuturesUnordered::new();
        let mut last = Ok(());
        for attempt in &deletion.attempts {
            if running.len() >= DELETED_AT_ONCE
                && let Some(Err(error)) = running.next().await
            {
                last = Err(error);
            }
            running.push(self.delete_one(attempt));
        }
        while let Some(deleted) = running.next().await {
            if let Err(error) = deleted {
                last = Err(error);
            }
        }
        last
    }

    async fn delete_one(&self, attempt: &Attempt) -> Result<(), ObjectError> {
        let (bucket, path) = self.place(attempt)?;
        match bucket.store.delete(&path).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(unavailable(&error)),
        }
    }

    /// Bucket and path of an object.
    pub(crate) fn place(&self, attempt: &Attempt) -> Result<(&Bucket, Path), ObjectError> {
        Ok((self.get(&attempt.bucket)?, path_of(&attempt.object)?))
    }
}

pub(crate) fn path_of(object: &str) -> Result<Path, ObjectError> {
    Path::parse(object).map_err(|error| ObjectError::Unavailable {
        why: error.to_string(),
    })
}

pub(crate) fn unavailable(error: &Error) -> ObjectError {
    ObjectError::Unavailable {
        why: error.to_string(),
    }
}

/// What an error of a read says of the object.
pub(crate) fn read_error(object: &str, error: &Error) -> ObjectError {
    match error {
        Error::NotFound { .. } => ObjectError::Absent {
            object: object.to_owned(),
        },
        error => unavailable(error),
    }
}
