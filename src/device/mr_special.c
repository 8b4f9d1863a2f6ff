/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Regions of other memory than the program's: none at all (null), a dma-buf, the device's. None can
 * be registered anew (ibv_rereg_mr).
 *
 * What of a dma-buf can be mapped into the process, this adapter reads and writes like other memory.
 * Any other descriptor that can be mapped and shared, of a file or a memfd, serves as well.
 */
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "device/device.h"

#define ACCESS_SPECIAL                                                               \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC)

static int check_access(const char *call, unsigned access, unsigned more)
{
	unsigned must = access & ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE;

	if (must & ~(unsigned)(ACCESS_SPECIAL | more)) {
		log_info("%s: access 0x%x: only 0x%x are possible with such a region", call, access,
			 ACCESS_SPECIAL | more);
		return -EINVAL;
	}
	return dev_mr_check_access(call, access);
}

int dev_mr_create_null(struct ibv_pd *pd, struct ibv_mr **out)
{
	const struct mr desc = { .length = UINT64_MAX,
				 .access = IBV_ACCESS_LOCAL_WRITE,
				 .null = true };
	struct dev_mr *mr;
	int rc = dev_pd_check(pd, "alloc_null_mr");

	if (!rc)
		rc = dev_mr_enter(pd, &desc, &mr);
	if (rc)
		return rc;
	mr->object->special = true;
	*out = &mr->ibv;
	return 0;
}

static int check_dmabuf(uint64_t offset, size_t length, uint64_t iova, int fd, unsigned access)
{
	const uint64_t in_page = (uint64_t)sysconf(_SC_PAGESIZE) - 1;
	uint64_t end, iova_end;
	struct stat st;

	if (length == 0 || __builtin_add_overflow(offset, length, &end) || end > INT64_MAX ||
	    __builtin_add_overflow(iova, length, &iova_end)) {
		log_info("reg_dmabuf_mr: offset 0x%llx or iova 0x%llx with length %zu",
			 (unsigned long long)offset, (unsigned long long)iova, length);
		return -EINVAL;
	}
	if ((offset & in_page) != (iova & in_page)) {
		log_info(
			"reg_dmabuf_mr: iova 0x%llx and offset 0x%llx must be at the same place of "
			"a page",
			(unsigned long long)iova, (unsigned long long)offset);
		return -EINVAL;
	}
	if (fstat(fd, &st)) {
		int rc = -errno;

		log_info("reg_dmabuf_mr: descriptor %d: %s", fd, strerror(-rc));
		return rc;
	}
	if (st.st_size > 0 && end > (uint64_t)st.st_size) {
		log_info("reg_dmabuf_mr: offset 0x%llx + length %zu is beyond the buffer's %llu "
			 "bytes",
			 (unsigned long long)offset, length, (unsigned long long)st.st_size);
		return -EINVAL;
	}
	return check_access("reg_dmabuf_mr", access, 0);
}

int dev_mr_create_dmabuf(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd,
			 unsigned access, struct ibv_mr **out)
{
	const uint64_t in_page = offset & ((uint64_t)sysconf(_SC_PAGESIZE) - 1);
	bool writes = access & ACCESS_SPECIAL & ~(unsigned)IBV_ACCESS_REMOTE_READ;
	struct mr desc = { .iova = iova, .length = length, .access = access };
	struct dev_mr *mr;
	void *mapping;
	int rc;

	rc = dev_pd_check(pd, "reg_dmabuf_mr");
	if (!rc)
		rc = check_dmabuf(offset, length, iova, fd, access);
	if (rc)
		return rc;
	mapping = mmap(NULL, length + in_page, PROT_READ | (writes ? PROT_WRITE : 0), MAP_SHARED,
		       fd, (off_t)(offset - in_page));
	if (mapping == MAP_FAILED) {
		rc = -errno;
		log_info("reg_dmabuf_mr: descriptor %d can't be mapped: %s", fd, strerror(errno));
		return rc;
	}
	desc.host = (uint8_t *)mapping + in_page;
	rc = dev_mr_enter(pd, &desc, &mr);
	if (rc) {
		munmap(mapping, length + in_page);
		return rc;
	}
	mr->object->special = true;
	mr->object->mapping = mapping;
	mr->object->mapping_len = length + in_page;
	mr->ibv.addr = NULL;
	*out = &mr->ibv;
	return 0;
}

int dev_mr_create_dm(struct ibv_pd *pd, struct ibv_dm *ibv_dm, uint64_t offset, size_t length,
		     unsigned access, struct ibv_mr **out)
{
	struct dev_context *ctx = dev_context_of(pd->context);
	struct dev_dm_object *dm = ibv_dm ? ((struct dev_dm *)ibv_dm)->object : NULL;
	struct mr desc = { .length = length, .access = access };
	struct dev_mr *mr;
	int rc;

	rc = dev_pd_check(pd, "reg_dm_mr");
	if (rc)
		return rc;
	if (!dm || ibv_dm->context != pd->context || offset > dm->length ||
	    length > dm->length - offset || !(access & IBV_ACCESS_ZERO_BASED)) {
		log_info("reg_dm_mr: [0x%llx, +%zu) must lie within device memory of the context, "
			 "access 0x%x have IBV_ACCESS_ZERO_BASED",
			 (unsigned long long)offset, length, access);
		return -EINVAL;
	}
	rc = check_access("reg_dm_mr", access, IBV_ACCESS_ZERO_BASED);
	if (!rc)
		rc = dev_shared_check(&dm->shared, "reg_dm_mr");
	if (rc)
		return rc;
	desc.host = dm->memory + offset;
	rc = dev_mr_enter(pd, &desc, &mr);
	if (rc)
		return rc;
	mr->object->special = true;
	mr->object->dm = dm;
	mr->ibv.addr = NULL;
	dev_shared_use(ctx->file, &dm->shared, 1);
	*out = &mr->ibv;
	return 0;
}
