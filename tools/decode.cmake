# rocelink decode: a library of its own, so that tests and the fuzzer can feed it.
if(TARGET rl_wire)
  add_library(rl_decode STATIC decode_answer.c decode_capture.c decode_cm.c decode_decoder.c decode_exchange.c
    decode_explain.c decode_flow.c decode_frame.c decode_icrc.c decode_json.c decode_party.c
    decode_rlnk.c decode_roce.c decode_svg.c decode_tcp.c decode_text.c decode_told.c decode_words.c)
  target_include_directories(rl_decode PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(rl_decode PUBLIC rl_wire PRIVATE PkgConfig::PCAP PkgConfig::ISAL)
  target_sources(rocelink PRIVATE decode.c)
  target_link_libraries(rocelink PRIVATE rl_decode)
endif()
