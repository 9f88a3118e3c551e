/* All kernels as one library: plain functions over pointers and lengths, called through ctypes.
 *
 * Nothing is allocated, nothing is kept between calls, nothing recurses. Only what the caller
 * gave is read and written.
 */
#include "audit.h"
#include "decode.h"
#include "digest.h"
#include "encode.h"
#include "frames.h"
#include "picked.h"
#include "walk.h"

#ifndef MQ_SOURCES
#define MQ_SOURCES "unknown"
#endif

/* The digest of the sources that this library was compiled from: see registry.py. */
const char *mq_sources(void)
{
    return MQ_SOURCES;
}

/* How checksums are computed: 0 by tables, 1 by an instruction of the processor. */
int64_t mq_crc_kind(void)
{
    return crc_chosen != crc_sliced;
}
